"""Requests to the Broker with exactly these headers, and the one shape of its errors."""

import http.client
import itertools
import json
import re
import time
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit

from tests.support.servers.processes import ServerProcess

Header = tuple[str, str | bytes]
Body = bytes | Iterator[bytes] | None

MIB = 1024 * 1024
UNKNOWN_ID = "00000000-0000-4000-8000-000000000000"
VALID_REQUEST_ID = re.compile(r"[A-Za-z0-9._:-]{1,128}")

TRACK_ENDPOINTS = [
    ("POST", "/v1/allocate"),
    ("GET", f"/v1/sandboxes/{UNKNOWN_ID}"),
    ("POST", f"/v1/sandboxes/{UNKNOWN_ID}/mark-for-deletion"),
    ("POST", f"/v1/sandboxes/{UNKNOWN_ID}/extend"),
    ("POST", f"/v1/sandboxes/{UNKNOWN_ID}/replace"),
    ("POST", "/v1/queue"),
    ("DELETE", "/v1/queue"),
]
ACTIONS = ("quarantine", "restore", "release", "retry-deletion")
ADMIN_ENDPOINTS = [
    ("GET", "/v1/admin/sandboxes"),
    ("GET", f"/v1/admin/sandboxes/{UNKNOWN_ID}"),
    ("GET", "/v1/admin/stats"),
    ("POST", "/v1/admin/sync"),
    ("POST", "/v1/admin/cleanup"),
    ("POST", "/v1/admin/expire"),
    ("POST", "/v1/admin/bulk-delete?status=stale"),
    ("POST", "/v1/admin/auto-delete-stale"),
    ("POST", "/v1/admin/bulk-quarantine"),
    ("POST", "/v1/admin/bulk-hold?status=stale"),
    ("POST", f"/v1/admin/sandboxes/{UNKNOWN_ID}/hold"),
    ("POST", "/v1/admin/reservations"),
    ("GET", "/v1/admin/reservations"),
    ("GET", "/v1/admin/reservations/res-unknown"),
    ("DELETE", "/v1/admin/reservations/res-unknown"),
    *(("POST", f"/v1/admin/sandboxes/{UNKNOWN_ID}/{action}") for action in ACTIONS),
]
OPEN_ENDPOINTS = [
    ("GET", "/healthz"),
    ("GET", "/readyz"),
    ("GET", "/metrics"),
    ("GET", "/openapi.json"),
    ("GET", "/docs"),
]
TOO_LONG = {"129 characters": "a" * 129, "10 kB": "a" * 10_240}
NOT_ASCII = {"UTF-8": "träck".encode(), "Latin-1": "tr\xe4ck".encode("latin-1")}

_numbers = itertools.count(1)


@dataclass(frozen=True, slots=True)
class Answer:
    status: int
    headers: http.client.HTTPMessage
    body: bytes

    @property
    def json(self) -> dict[str, Any]:
        found: dict[str, Any] = json.loads(self.body)
        return found


def send(
    server: ServerProcess,
    method: str,
    path: str,
    headers: Sequence[Header] = (),
    body: Body = None,
) -> Answer:
    """One request with exactly these headers, in this order; an iterator is sent in chunks."""
    address = urlsplit(server.url)
    assert address.hostname is not None
    connection = http.client.HTTPConnection(address.hostname, address.port, timeout=30)
    try:
        connection.putrequest(method, path, skip_accept_encoding=True)
        for name, value in headers:
            connection.putheader(name, value)
        if isinstance(body, bytes):
            connection.putheader("Content-Length", str(len(body)))
        elif body is not None:
            connection.putheader("Transfer-Encoding", "chunked")
        with suppress(BrokenPipeError, ConnectionResetError):  # answered before the body was over
            connection.endheaders(body, encode_chunked=not isinstance(body, bytes | None))
        response = connection.getresponse()
        return Answer(response.status, response.headers, response.read())
    finally:
        connection.close()


def assert_error(answer: Answer, status: int, code: str) -> dict[str, Any]:
    """The one error shape, and what must agree in it; gives the error."""
    assert answer.status == status, answer.body
    assert answer.headers["content-type"] == "application/json"
    assert set(answer.json) == {"error"}
    error: dict[str, Any] = answer.json["error"]
    assert {"code", "message", "request_id"} <= set(error)
    assert set(error) <= {"code", "message", "request_id", "retry_after", "details"}
    assert error["code"] == code
    assert error["message"].strip()
    assert answer.headers.get_all("x-request-id") == [error["request_id"]]
    wait = str(error["retry_after"]) if "retry_after" in error else None
    assert answer.headers["retry-after"] == wait
    if status == 401:
        assert answer.headers["www-authenticate"] == "Bearer"
    return error


def token(server: ServerProcess) -> Header:
    return ("Authorization", f"Bearer {server.track_token}")


def admin_token(server: ServerProcess) -> Header:
    return ("Authorization", f"Bearer {server.admin_token}")


def new_track() -> str:
    return f"track-{next(_numbers)}"


def allocate(server: ServerProcess, track_id: str, *headers: Header) -> Answer:
    sent = [token(server), ("X-Track-ID", track_id), *headers]
    return send(server, "POST", "/v1/allocate", sent)


def lease(server: ServerProcess, track_id: str, *headers: Header) -> dict[str, Any]:
    answer = allocate(server, track_id, *headers)
    assert answer.status == 201, answer.body
    return answer.json


def inspect(server: ServerProcess, sandbox_id: str) -> dict[str, Any]:
    answer = send(server, "GET", f"/v1/admin/sandboxes/{sandbox_id}", [admin_token(server)])
    assert answer.status == 200
    return answer.json


def stats(server: ServerProcess) -> dict[str, Any]:
    answer: dict[str, Any] = send(server, "GET", "/v1/admin/stats", [admin_token(server)]).json
    return {name: value for name, value in answer.items() if name != "counted_at"}


def listing(server: ServerProcess, query: str) -> Answer:
    return send(server, "GET", f"/v1/admin/sandboxes?{query}", [admin_token(server)])


def next_cursor(server: ServerProcess, query: str) -> str:
    cursor = listing(server, query).json["next_cursor"]
    assert isinstance(cursor, str)
    return cursor


def logged(server: ServerProcess, request_id: str) -> dict[str, Any]:
    """The line about this request; it is written after the answer, so it may need a moment."""
    deadline = time.monotonic() + 30
    while time.monotonic() < deadline:
        for line in server.log.read_text().splitlines():
            if f'"{request_id}"' in line:
                found: dict[str, Any] = json.loads(line)
                return found
        time.sleep(0.02)
    raise AssertionError(f"{request_id} is not in the log")
