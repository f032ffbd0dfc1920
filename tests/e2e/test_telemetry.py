"""Telemetry over real HTTP: what devices send, what operators see, and each refusal's code."""

import csv
import io
import socket
import sqlite3
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any
from uuid import uuid4

import httpx
import orjson
import psutil
import pyarrow.parquet as pq
import pytest

from tests.servers import ServerProcess, sandyard_serve

BOOT_ID = "7c9e6679-7425-40de-944b-e07fc1f90ae7"
HOUR_MS = 3_600_000


def now_ms() -> int:
    return int(time.time() * 1000)


class Api:
    """The calls of one device and of an operator."""

    def __init__(self, server: ServerProcess) -> None:
        self.server = server
        self.client = httpx.Client(base_url=f"{server.url}/telemetry/v1", timeout=30)
        self.operator = server.operator
        self.key = self.new_key()
        self.device = {"X-API-Key": self.key["api_key"]}
        self.hardware_id = random_mac()
        self.register().raise_for_status()

    def new_key(self) -> dict[str, Any]:
        made: dict[str, Any] = self.client.post("/api-keys", headers=self.operator).json()
        return made

    def registration(self, **changes: Any) -> dict[str, Any]:
        return {
            "hardware_id": self.hardware_id,
            "boot_id": BOOT_ID,
            "firmware_version": "1.0.16",
            "capabilities": {"sensors": ["bme280"], "features": {"tft_display": True}},
        } | changes

    def register(self, **changes: Any) -> httpx.Response:
        return self.client.post("/register", headers=self.device, json=self.registration(**changes))

    def reading(self, **changes: Any) -> dict[str, Any]:
        return {
            "hardware_id": self.hardware_id,
            "timestamp_ms": now_ms(),
            "batch_id": f"{self.hardware_id}_{BOOT_ID}_{uuid4().hex}",
            "boot_id": BOOT_ID,
            "firmware_version": "1.0.16",
            "sensors": {"bme280_temp_c": 22.5, "humidity_pct": 45},
            "sensor_status": {"bme280": "ok"},
        } | changes

    def send(self, *readings: Any) -> httpx.Response:
        return self.client.post("/data", headers=self.device, json={"readings": readings})

    def get(self, path: str, **parameters: Any) -> httpx.Response:
        url = f"/devices/{self.hardware_id}{path}"
        return self.client.get(url, headers=self.operator, params=parameters)


def random_mac() -> str:
    return ":".join(uuid4().hex[2 * n : 2 * n + 2] for n in range(6)).upper()


def code_of(answer: httpx.Response) -> tuple[int, str]:
    return answer.status_code, answer.json()["error"]["code"]


@pytest.fixture(scope="module")
def telemetry_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    folder = tmp_path_factory.mktemp("telemetry")
    with sandyard_serve(folder / "data", environment={"PARTS": "telemetry"}) as server:
        yield server


@pytest.fixture
def api(telemetry_server: ServerProcess) -> Iterator[Api]:
    api = Api(telemetry_server)
    yield api
    api.client.close()


def test_a_process_may_serve_telemetry_alone(telemetry_server: ServerProcess) -> None:
    answer = httpx.post(f"{telemetry_server.url}/v1/allocate", headers=telemetry_server.track)
    assert code_of(answer) == (404, "NOT_FOUND")
    assert not (telemetry_server.data_dir / "broker.db").exists()


def test_registering_again_keeps_the_confirmation_id(api: Api) -> None:
    first = api.register().json()
    again = api.register(boot_id=str(uuid4()), firmware_version="1.0.17").json()
    assert first == again
    assert first["status"] == "registered"
    assert first["hardware_id"] == api.hardware_id
    shown = api.get("").json()
    assert shown["firmware_version"] == "1.0.17"
    assert shown["confirmation_id"] == first["confirmation_id"]


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("hardware_id", "aa:bb:cc:dd:ee:ff"),
        ("hardware_id", "AA-BB-CC-DD-EE-FF"),
        ("hardware_id", "AA:BB:CC:DD:EE"),
        ("hardware_id", None),
        ("boot_id", "c9a646d3-9c61-1cb7-bfcd-ee2522c8f633"),
        ("boot_id", "7c9e6679-7425-50de-944b-e07fc1f90ae7"),
        ("boot_id", "7c9e6679-7425-40de-c44b-e07fc1f90ae7"),
        ("boot_id", "7c9e6679742540de944be07fc1f90ae7"),
        ("firmware_version", ""),
        ("firmware_version", "x" * 65),
        ("capabilities", ["bme280"]),
        ("capabilities", {"sensors": "bme280"}),
        ("capabilities", {"features": {"tft_display": "yes"}}),
        ("friendly_name", "x" * 65),
        ("friendly_name", ""),
        ("friendly_name", "bell\u0007"),
        ("friendly_name", 5),
    ],
)
def test_a_bad_registration_names_its_field(api: Api, field: str, value: Any) -> None:
    answer = api.register(**{field: value})
    assert code_of(answer) == (400, "INVALID_REQUEST")
    [mistake, *_] = answer.json()["error"]["details"]["mistakes"]
    assert mistake["field"].split(".")[0] == field


def test_one_malformed_among_ninety_nine_good_blocks_none(api: Api) -> None:
    good = [api.reading() for _ in range(99)]
    answer = api.send(*good[:40], {"batch_id": "x"}, *good[40:]).json()
    assert answer["acknowledged_batch_ids"] == [each["batch_id"] for each in good]
    assert answer["duplicate_batch_ids"] == []
    [rejected] = answer["rejected"]
    assert (rejected["index"], rejected["batch_id"]) == (40, "x")
    assert rejected["code"] == "INVALID_HARDWARE_ID"
    assert rejected["message"]


@pytest.mark.parametrize(
    ("changes", "code"),
    [
        ({"batch_id": ""}, "INVALID_BATCH_ID"),
        ({"batch_id": "x" * 257}, "INVALID_BATCH_ID"),
        ({"batch_id": "with space"}, "INVALID_BATCH_ID"),
        ({"batch_id": 7}, "INVALID_BATCH_ID"),
        ({"hardware_id": "aa:bb:cc:dd:ee:ff"}, "INVALID_HARDWARE_ID"),
        ({"hardware_id": "AA:BB:CC:00:11:22"}, "DEVICE_NOT_REGISTERED"),
        ({"timestamp_ms": 946_684_799_999}, "INVALID_TIMESTAMP"),
        ({"timestamp_ms": 4_102_444_800_000}, "INVALID_TIMESTAMP"),
        ({"timestamp_ms": "1704067800000"}, "INVALID_TIMESTAMP"),
        ({"timestamp_ms": 1704067800000.5}, "INVALID_TIMESTAMP"),
        ({"timestamp_ms": True}, "INVALID_TIMESTAMP"),
        ({"timestamp_ms": 946_684_800_000}, "TOO_OLD"),
        ({"boot_id": "c9a646d3-9c61-1cb7-bfcd-ee2522c8f633"}, "INVALID_BOOT_ID"),
        ({"firmware_version": ""}, "INVALID_FIRMWARE_VERSION"),
        ({"sensors": {"t": "22.5"}}, "INVALID_SENSORS"),
        ({"sensors": {"t": True}}, "INVALID_SENSORS"),
        ({"sensors": {"t": {"c": 22.5}}}, "INVALID_SENSORS"),
        ({"sensors": {"t": [22.5]}}, "INVALID_SENSORS"),
        ({"sensors": {"t": None}}, "INVALID_SENSORS"),
        ({"sensors": {"Temp": 1}}, "INVALID_SENSORS"),
        ({"sensors": {"x" * 65: 1}}, "INVALID_SENSORS"),
        ({"sensors": {f"s{n}": n for n in range(101)}}, "INVALID_SENSORS"),
        ({"sensors": None}, "INVALID_SENSORS"),
        ({"sensor_status": {"bme280": "fine"}}, "INVALID_SENSOR_STATUS"),
        ({"sensor_status": None}, "INVALID_SENSOR_STATUS"),
    ],
)
def test_a_bad_reading_has_its_code_and_its_neighbour_is_stored(
    api: Api, changes: dict[str, Any], code: str
) -> None:
    neighbour = api.reading()
    answer = api.send(api.reading(**changes), neighbour).json()
    assert [(each["index"], each["code"]) for each in answer["rejected"]] == [(0, code)]
    assert answer["acknowledged_batch_ids"] == [neighbour["batch_id"]]


@pytest.mark.parametrize(
    "value", ["NaN", "Infinity", "-Infinity", "1e999", "nan", "-nan", "inf", "-inf", "INF"]
)
def test_a_number_that_json_lacks_is_rejected_alone(api: Api, value: str) -> None:
    good, bad = api.reading(), api.reading(sensors={"t": 777})
    body = orjson.dumps({"readings": [bad, good]}).replace(b"777", value.encode())
    answer = api.client.post("/data", headers=api.device, content=body).json()
    assert [each["code"] for each in answer["rejected"]] == ["INVALID_SENSORS"]
    assert answer["acknowledged_batch_ids"] == [good["batch_id"]]


def test_what_json_can_hold_comes_back_as_it_was(api: Api) -> None:
    sensors = {"zero": 0, "negative": -40.25, "large": 1.5e100, "small": 2.5e-100, "never_seen": 7}
    api.send(api.reading(sensors=sensors, sensor_status={})).raise_for_status()
    assert api.get("/latest").json()["sensors"] == sensors


def test_the_same_id_with_the_same_content_is_a_duplicate(api: Api) -> None:
    reading = api.reading()
    assert api.send(reading).json()["acknowledged_batch_ids"] == [reading["batch_id"]]
    bare = api.client.post("/data", headers=api.device, json=reading).json()
    assert bare == {
        "acknowledged_batch_ids": [],
        "duplicate_batch_ids": [reading["batch_id"]],
        "rejected": [],
    }


def test_the_same_id_with_other_content_is_a_conflict_and_changes_nothing(api: Api) -> None:
    reading = api.reading()
    api.send(reading).raise_for_status()
    other = Api(api.server)
    for sender, changed in (
        (api, reading | {"sensors": {"bme280_temp_c": 99}}),
        (api, reading | {"timestamp_ms": reading["timestamp_ms"] + 1}),
        (other, reading | {"hardware_id": other.hardware_id}),
    ):
        answer = sender.send(changed).json()
        assert [each["code"] for each in answer["rejected"]] == ["BATCH_ID_CONFLICT"]
    page = api.get("/readings").json()["readings"]
    assert [each["sensors"] for each in page] == [reading["sensors"]]
    assert other.get("/readings").json()["readings"] == []
    other.client.close()


def test_the_same_id_twice_in_a_request_is_stored_once(api: Api) -> None:
    reading = api.reading()
    changed = reading | {"sensors": {"bme280_temp_c": 1}}
    answer = api.send(reading, reading, changed).json()
    assert answer["acknowledged_batch_ids"] == [reading["batch_id"]]
    assert answer["duplicate_batch_ids"] == [reading["batch_id"]]
    assert [(e["index"], e["code"]) for e in answer["rejected"]] == [(2, "BATCH_ID_CONFLICT")]
    assert len(api.get("/readings").json()["readings"]) == 1


def test_101_readings_are_refused_whole(api: Api) -> None:
    assert code_of(api.send(*[api.reading() for _ in range(101)])) == (400, "BATCH_SIZE_EXCEEDED")
    assert api.get("/readings").json()["readings"] == []
    answer = api.send(*[api.reading() for _ in range(100)]).json()
    assert len(answer["acknowledged_batch_ids"]) == 100


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


def test_a_body_that_breaks_off_is_told_and_is_no_fault_of_ours(api: Api) -> None:
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


def test_a_body_that_drips_is_broken_off(tmp_path: Path) -> None:
    environment = {"PARTS": "telemetry", "BODY_TIMEOUT_SEC": "0.5"}
    with sandyard_serve(tmp_path / "data", environment=environment) as server:
        api = Api(server)
        url = httpx.URL(server.url)
        with socket.create_connection((url.host, url.port or 80), timeout=5) as connection:
            connection.sendall(
                b"POST /telemetry/v1/data HTTP/1.1\r\nHost: x\r\nContent-Length: 500\r\n"
                + f"X-API-Key: {api.key['api_key']}\r\n\r\n{{".encode()
            )
            assert b"BODY_BROKEN_OFF" in connection.recv(65536)
        api.client.close()


def test_who_has_no_key_is_refused_before_the_body_is_looked_at(api: Api) -> None:
    for path in ("/register", "/data"):
        answer = api.client.post(path, content=b"{")
        assert code_of(answer) == (401, "INVALID_API_KEY")
    assert code_of(api.client.post("/api-keys", content=b"{")) == (401, "UNAUTHORIZED")


def test_firmware_may_say_more_of_itself_than_is_known_here(api: Api) -> None:
    more = {"sensors": ["bme280"], "radio": "lora"}
    assert api.register(capabilities=more, battery=3.7).status_code == 200
    registration = api.registration()
    del registration["capabilities"]
    answer = api.client.post("/register", headers=api.device, json=registration)
    assert answer.status_code == 200


def test_a_body_that_is_no_json_or_not_said_to_be_is_told(api: Api) -> None:
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

    def send_until_refused(_number: int) -> list[set[str]]:
        """What was acknowledged, request by request."""
        sent: list[set[str]] = []
        deadline = time.monotonic() + 20
        while time.monotonic() < deadline:
            readings = [api.reading() for _ in range(100)]
            answer = httpx.post(url, headers=device, json={"readings": readings}, timeout=30)
            if answer.status_code == 401:
                return sent
            sent.append({each["batch_id"] for each in readings})
            assert set(answer.json()["acknowledged_batch_ids"]) == sent[-1]
        raise AssertionError("the key went on to open the door")

    with ThreadPoolExecutor(4) as pool:
        sending = pool.map(send_until_refused, range(4))
        time.sleep(0.5)
        revoked = api.client.delete(f"/api-keys/{key['key_id']}", headers=api.operator)
        assert revoked.status_code == 200
        acknowledged = [sent for sender in sending for sent in sender]
    assert acknowledged
    stored = {each["batch_id"] for each in all_readings(api)}
    assert stored == set().union(*acknowledged)
    assert code_of(httpx.post(url, headers=device)) == (401, "INVALID_API_KEY")


def all_readings(api: Api, **parameters: Any) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = []
    cursor: dict[str, str] = {}
    while True:
        page = api.get("/readings", limit=1000, **parameters, **cursor).json()
        found += page["readings"]
        if page["next_cursor"] is None:
            return found
        cursor = {"cursor": page["next_cursor"]}


@pytest.mark.parametrize(
    ("headers", "code"),
    [
        ({}, "INVALID_API_KEY"),
        ({"X-API-Key": ""}, "INVALID_API_KEY"),
        ({"X-API-Key": "0" * 64}, "INVALID_API_KEY"),
        ({"X-API-Key": "é" * 64}, "INVALID_API_KEY"),
        ({"Authorization": "Bearer telemetry-token"}, "INVALID_API_KEY"),
    ],
)
def test_a_device_door_opens_to_its_own_keys_only(
    api: Api, headers: dict[str, str], code: str
) -> None:
    raw = {name.encode(): value.encode() for name, value in headers.items()}
    for path in ("/data", "/register"):
        answer = api.client.post(path, headers=raw, json={})
        assert code_of(answer) == (401, code)
        assert answer.headers["www-authenticate"] == "ApiKey"


@pytest.mark.parametrize("path", ["/devices", "/api-keys", "/devices/AA:BB:CC:DD:EE:FF/latest"])
def test_an_operators_door_opens_to_its_own_token_only(api: Api, path: str) -> None:
    for headers in ({}, api.device, api.server.track, api.server.admin):
        assert code_of(api.client.get(path, headers=headers)) == (401, "UNAUTHORIZED")


def test_a_key_is_shown_once_and_only_its_hash_is_kept(api: Api) -> None:
    key = api.new_key()
    assert len(bytes.fromhex(key["api_key"])) == 32
    listed = api.client.get("/api-keys", headers=api.operator, params={"limit": 100}).text
    assert key["key_id"] in listed
    assert key["api_key"] not in listed
    for file in api.server.data_dir.iterdir():
        if file.is_file():
            assert key["api_key"].encode() not in file.read_bytes()
    assert key["api_key"] not in api.server.log.read_text()


def test_a_name_is_given_taken_away_and_carried_by_later_readings(api: Api) -> None:
    def rename(name: Any) -> httpx.Response:
        return api.client.put(
            f"/devices/{api.hardware_id}", headers=api.operator, json={"friendly_name": name}
        )

    before, named, after = api.reading(), api.reading(), api.reading()
    api.send(before)
    assert rename("x" * 64).json()["friendly_name"] == "x" * 64
    api.send(named)
    assert rename(None).json()["friendly_name"] is None
    api.send(after)
    names = {each["batch_id"]: each["friendly_name"] for each in all_readings(api)}
    assert names == {
        before["batch_id"]: None,
        named["batch_id"]: "x" * 64,
        after["batch_id"]: None,
    }
    for bad in ("x" * 65, "", "a\nb", 5, "\x00"):
        assert code_of(rename(bad)) == (400, "INVALID_REQUEST")
    missing = api.client.put(f"/devices/{api.hardware_id}", headers=api.operator, json={})
    assert code_of(missing) == (400, "INVALID_REQUEST")


def test_what_is_unknown_or_malformed_in_a_path_is_told_apart(api: Api) -> None:
    for path in ("", "/readings", "/latest", "/series?metric=t", "/export"):
        unknown = api.client.get(f"/devices/AA:BB:CC:00:00:99{path}", headers=api.operator)
        assert code_of(unknown) == (404, "DEVICE_NOT_FOUND")
        lower = api.client.get(f"/devices/aa:bb:cc:00:00:99{path}", headers=api.operator)
        assert code_of(lower) == (400, "INVALID_REQUEST")
    assert code_of(api.get("/latest")) == (404, "NO_READINGS")
    gone = api.client.delete(f"/api-keys/{uuid4()}", headers=api.operator)
    assert code_of(gone) == (404, "API_KEY_NOT_FOUND")


@pytest.mark.parametrize(
    ("path", "parameters", "code"),
    [
        ("/readings", {"limit": 0}, "INVALID_REQUEST"),
        ("/readings", {"limit": 1001}, "INVALID_REQUEST"),
        ("/readings", {"from": -1}, "INVALID_REQUEST"),
        ("/readings", {"to": 10**13}, "INVALID_REQUEST"),
        ("/readings", {"from": 2, "to": 1}, "INVALID_RANGE"),
        ("/readings", {"cursor": "abc"}, "INVALID_CURSOR"),
        ("/series", {}, "INVALID_REQUEST"),
        ("/series", {"metric": "Temp"}, "INVALID_REQUEST"),
        ("/series", {"metric": "t", "bucket": "0s"}, "INVALID_REQUEST"),
        ("/series", {"metric": "t", "bucket": "1w"}, "INVALID_REQUEST"),
        ("/series", {"metric": "t", "bucket": "1ms"}, "TOO_MANY_BUCKETS"),
        ("/export", {"format": "xlsx"}, "INVALID_REQUEST"),
    ],
)
def test_a_bad_parameter_is_refused(
    api: Api, path: str, parameters: dict[str, Any], code: str
) -> None:
    assert code_of(api.get(path, **parameters)) == (400, code)


def test_a_series_has_least_mean_greatest_and_number_by_bucket(api: Api) -> None:
    start = now_ms() // HOUR_MS * HOUR_MS - HOUR_MS
    values = {0: 10, 1: 20, 60_000: 5.5, 119_999: 6.5, 120_000: 1}
    api.send(
        *[api.reading(timestamp_ms=start + at, sensors={"t": v}) for at, v in values.items()],
        api.reading(timestamp_ms=start + 2, sensors={"other": 1}),
    ).raise_for_status()
    answer = api.get("/series", metric="t", **{"from": start, "to": start + 119_999}, bucket="1m")
    assert answer.json()["series"] == [
        {"start_ms": start, "min": 10, "mean": 15, "max": 20, "count": 2},
        {"start_ms": start + 60_000, "min": 5.5, "mean": 6, "max": 6.5, "count": 2},
    ]


def test_an_export_is_complete_in_both_formats(api: Api) -> None:
    sent = [api.reading(timestamp_ms=now_ms() - n, sensors={"t": n + 0.5}) for n in range(250)]
    for start in range(0, 250, 100):
        api.send(*sent[start : start + 100]).raise_for_status()
    sent.sort(key=lambda each: (each["timestamp_ms"], each["batch_id"]))
    rows = list(csv.DictReader(io.StringIO(api.get("/export").text)))
    assert [(int(row["timestamp_ms"]), orjson.loads(row["sensors"])) for row in rows] == [
        (each["timestamp_ms"], each["sensors"]) for each in sent
    ]
    answer = api.get("/export", format="parquet")
    assert answer.headers["content-disposition"].endswith('.parquet"')
    table = pq.read_table(io.BytesIO(answer.content)).to_pylist()
    assert [(row["batch_id"], dict(row["sensors"])) for row in table] == [
        (each["batch_id"], each["sensors"]) for each in sent
    ]


@pytest.mark.parametrize("file_format", ["csv", "parquet"])
def test_a_million_readings_are_exported_in_constant_memory(
    tmp_path: Path, file_format: str
) -> None:
    with sandyard_serve(tmp_path / "data", environment={"PARTS": "telemetry"}) as server:
        api = Api(server)
        _fill(server.data_dir / "telemetry.db", api.hardware_id, 1_000_000)
        process = psutil.Process(server.process.pid)
        url = f"/devices/{api.hardware_id}/export"
        size = 0
        early = peak = 0
        with api.client.stream(
            "GET", url, headers=api.operator, params={"format": file_format}
        ) as answer:
            for number, chunk in enumerate(answer.iter_bytes(1 << 20)):
                size += len(chunk)
                memory = _anonymous(process)
                peak = max(peak, memory)
                if number == 5:
                    early = memory
        api.client.close()
    assert size > 10_000_000
    assert peak - early < 60_000_000, (early, peak, size)


def _anonymous(process: psutil.Process) -> int:
    """The memory that is the process's own; the pages of the database file are the system's."""
    memory = process.memory_info()
    return int(memory.rss - memory.shared)


def _fill(file: Path, hardware_id: str, count: int) -> None:
    first = now_ms() - count
    with sqlite3.connect(file) as database:
        database.execute(
            "WITH RECURSIVE n(i) AS (SELECT 0 UNION ALL SELECT i + 1 FROM n WHERE i + 1 < ?) "
            "INSERT INTO device_readings SELECT ?, ? + i, 'batch-' || i, ?, '1.0.16', NULL, "
            "'{\"t\":' || (i % 100) || '.5,\"r\":' || abs(random() % 1000000) || '}', "
            '\'{"bme280":"ok"}\' '
            "FROM n",
            (count, hardware_id, first, BOOT_ID),
        )
    database.close()
