"""Bodies that are no readings, and keys that are revoked while they come."""

import socket
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import httpx
import orjson
import pytest

from tests.e2e.telemetry.api import Api, all_readings, code_of
from tests.support.servers.processes import ServerProcess, sandyard_serve


@pytest.mark.parametrize(
    ("body", "code"),
    [
        (b'{"readings": []}', "EMPTY_BATCH"),
        (b'{"readings": {}}', "INVALID_REQUEST"),
        (b'{"readings": null}', "INVALID_REQUEST"),
        (b"[]", "INVALID_REQUEST"),
        (b"", "INVALID_REQUEST"),
        (b"{", "INVALID_REQUEST"),
        (b"\xff\xfe", "INVALID_REQUEST"),
        (b"[" * 100_000, "INVALID_REQUEST"),
        (b'{"a":' * 100_000, "INVALID_REQUEST"),
        (b"5", "INVALID_REQUEST"),
    ],
)
def test_a_body_without_readings_is_refused(api: Api, body: bytes, code: str) -> None:
    answer = api.client.post("/data", headers=api.device, content=body)
    assert code_of(answer) == (400, code)


def test_an_interrupted_body_is_a_client_error(api: Api) -> None:
    url = httpx.URL(api.server.url)
    with socket.create_connection((url.host, url.port or 80)) as connection:
        connection.sendall(
            b"POST /telemetry/v1/data HTTP/1.1\r\nHost: x\r\nContent-Length: 500\r\n"
            + f"X-API-Key: {api.key['api_key']}\r\n\r\n{{".encode()
        )
        connection.shutdown(socket.SHUT_WR)
        answer = connection.recv(65536)
    assert answer.startswith(b"HTTP/1.1 400")
    assert b"BODY_BROKEN_OFF" in answer
    assert "Traceback" not in api.server.log.read_text()


def test_a_slow_body_is_aborted(tmp_path: Path) -> None:
    environment = {"PARTS": "telemetry", "BODY_TIMEOUT_SEC": "3"}
    with sandyard_serve(tmp_path / "data", environment=environment) as server:
        api = Api(server)
        url = httpx.URL(server.url)
        with socket.create_connection((url.host, url.port or 80), timeout=60) as connection:
            connection.sendall(
                b"POST /telemetry/v1/data HTTP/1.1\r\nHost: x\r\nContent-Length: 500\r\n"
                + f"X-API-Key: {api.key['api_key']}\r\n\r\n{{".encode()
            )
            assert b"BODY_BROKEN_OFF" in connection.recv(65536)
        api.client.close()


def test_a_request_without_a_key_is_refused_before_its_body_is_read(api: Api) -> None:
    for path in ("/register", "/data"):
        answer = api.client.post(path, content=b"{")
        assert code_of(answer) == (401, "INVALID_API_KEY")
    assert code_of(api.client.post("/api-keys", content=b"{")) == (401, "UNAUTHORIZED")


def test_unknown_fields_of_a_registration_are_ignored(api: Api) -> None:
    more = {"sensors": ["bme280"], "radio": "lora"}
    assert api.register(capabilities=more, battery=3.7).status_code == 200
    registration = api.registration()
    del registration["capabilities"]
    answer = api.client.post("/register", headers=api.device, json=registration)
    assert answer.status_code == 200


def test_a_body_that_is_not_json_is_refused(api: Api) -> None:
    headers = api.device | {"Content-Type": "application/json"}
    answer = api.client.post("/register", headers=headers, content=b"{")
    assert answer.json()["error"]["message"].startswith("The body is not JSON")
    headers["Content-Type"] = "application/x-www-form-urlencoded"
    body = orjson.dumps(api.registration())
    answer = api.client.post("/register", headers=headers, content=body)
    assert "Content-Type: application/json" in answer.json()["error"]["message"]


@pytest.mark.parametrize("path", ["/healthz", "/readyz"])
def test_load_balancers_may_ask_by_head(telemetry_server: ServerProcess, path: str) -> None:
    answer = httpx.head(telemetry_server.url + path)
    assert (answer.status_code, answer.content) == (200, b"")


def test_a_body_of_5_mb_is_refused(api: Api) -> None:
    big = api.reading(padding="x" * 5_000_000)
    assert code_of(api.send(big)) == (413, "BODY_TOO_LARGE")


def test_a_key_that_is_revoked_in_mid_batch_lets_what_was_sent_end_and_nothing_more(
    api: Api,
) -> None:
    key = api.new_key()
    device = {"X-API-Key": key["api_key"]}
    url = f"{api.server.url}/telemetry/v1/data"

    is_under_way = threading.Event()

    def send_until_refused(_number: int) -> list[set[str]]:
        """What was acknowledged, request by request."""
        sent: list[set[str]] = []
        deadline = time.monotonic() + 60
        while time.monotonic() < deadline:
            readings = [api.reading() for _ in range(100)]
            answer = httpx.post(url, headers=device, json={"readings": readings}, timeout=30)
            if answer.status_code == 401:
                return sent
            sent.append({each["batch_id"] for each in readings})
            assert set(answer.json()["acknowledged_batch_ids"]) == sent[-1]
            is_under_way.set()
        raise AssertionError("the key was accepted still")

    with ThreadPoolExecutor(4) as pool:
        sending = pool.map(send_until_refused, range(4))
        assert is_under_way.wait(60)
        revoked = api.client.delete(f"/api-keys/{key['key_id']}", headers=api.operator)
        assert revoked.status_code == 200
        acknowledged = [sent for sender in sending for sent in sender]
    assert acknowledged
    stored = {each["batch_id"] for each in all_readings(api)}
    assert stored == set().union(*acknowledged)
    assert code_of(httpx.post(url, headers=device, timeout=60)) == (401, "INVALID_API_KEY")
