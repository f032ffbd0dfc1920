"""Bodies, paths and methods that callers get wrong, and what is not HTTP."""

import re
import socket
from collections.abc import Iterator
from urllib.parse import urlsplit

import pytest

from tests.e2e.broker.requests import (
    ADMIN_ENDPOINTS,
    MIB,
    OPEN_ENDPOINTS,
    TRACK_ENDPOINTS,
    UNKNOWN_ID,
    Body,
    admin_token,
    assert_error,
    logged,
    new_track,
    send,
    stats,
    token,
)
from tests.support.servers.processes import ServerProcess

# Bodies


def chunks(size: int) -> Iterator[bytes]:
    whole, rest = divmod(size, 64 * 1024)
    return iter([b"x" * 64 * 1024] * whole + [b"x" * rest] * bool(rest))


def body_of(size: int, *, chunked: bool) -> Body:
    return chunks(size) if chunked else b"x" * size


BODY_ENDPOINTS = [
    ("POST", "/v1/allocate"),
    ("POST", f"/v1/sandboxes/{UNKNOWN_ID}/mark-for-deletion"),
    ("POST", "/v1/admin/expire"),
    ("GET", "/v1/admin/stats"),
    ("GET", "/healthz"),
]


@pytest.mark.parametrize("chunked", [False, True], ids=["with its length", "in chunks"])
@pytest.mark.parametrize("size", [MIB + 1, 10 * MIB], ids=["1 byte too large", "10 MB"])
@pytest.mark.parametrize(("method", "path"), BODY_ENDPOINTS)
def test_a_body_that_is_too_large_is_refused(
    server: ServerProcess, method: str, path: str, size: int, chunked: bool
) -> None:
    credential = admin_token(server) if "/admin/" in path else token(server)
    before = stats(server)
    headers = [credential, ("X-Track-ID", new_track()), ("Content-Type", "application/json")]
    answer = send(server, method, path, headers, body_of(size, chunked=chunked))
    assert_error(answer, 413, "BODY_TOO_LARGE")
    assert stats(server) == before


@pytest.mark.parametrize("chunked", [False, True], ids=["with its length", "in chunks"])
def test_a_body_of_the_largest_size_is_taken(server: ServerProcess, chunked: bool) -> None:
    headers = [token(server), ("X-Track-ID", new_track())]
    answer = send(server, "POST", "/v1/allocate", headers, body_of(MIB, chunked=chunked))
    assert answer.status == 201


def test_a_length_that_is_too_large_is_refused_before_the_body_comes(
    server: ServerProcess,
) -> None:
    headers = [token(server), ("X-Track-ID", new_track()), ("Content-Length", str(10 * MIB))]
    assert_error(send(server, "POST", "/v1/allocate", headers), 413, "BODY_TOO_LARGE")


@pytest.mark.parametrize("chunked", [False, True], ids=["with its length", "in chunks"])
def test_the_rest_of_a_refused_body_is_never_taken_for_a_request(
    server: ServerProcess, chunked: bool
) -> None:
    hidden = b"GET /healthz HTTP/1.1\r\nHost: a\r\nX-Request-ID: smuggled\r\n\r\n"
    body = hidden * (2 * MIB // len(hidden))
    headers = [token(server), ("X-Track-ID", new_track()), ("X-Request-ID", f"carrier-{chunked}")]
    send(server, "POST", "/v1/allocate", headers, iter([body]) if chunked else body)
    logged(server, f"carrier-{chunked}")
    assert send(server, "GET", "/healthz").status == 200
    assert "smuggled" not in server.log.read_text()


NO_JSON = {
    "cut off": ("application/json", b'{"a":'),
    "nothing": ("application/json", b""),
    "no text": ("application/json", b"\xff\xfe\x00"),
    "a number": ("application/json", b"7"),
    "deeply nested": ("application/json", b"[" * 100_000),
    "a form": ("application/x-www-form-urlencoded", b"a=%ff&b"),
    "a form in parts without a boundary": ("multipart/form-data", b"--x"),
    "a type that is none": ("nonsense; ;;=", b"{}"),
}


@pytest.mark.parametrize(("content_type", "body"), NO_JSON.values(), ids=NO_JSON)
def test_calls_that_take_no_body_do_not_mind_one(
    server: ServerProcess, content_type: str, body: bytes
) -> None:
    kind = ("Content-Type", content_type)
    track = [token(server), ("X-Track-ID", new_track()), kind]
    claimed = send(server, "POST", "/v1/allocate", track, body)
    assert claimed.status == 201, claimed.body
    path = f"/v1/sandboxes/{claimed.json['sandbox_id']}/mark-for-deletion"
    assert send(server, "POST", path, track, body).status == 200
    for job in ("sync", "cleanup", "expire"):
        answer = send(server, "POST", f"/v1/admin/{job}", [admin_token(server), kind], body)
        assert answer.status == 200, answer.body


# Paths and methods


NO_PATHS = ["/v1", "/v1/", "/v1/nowhere", "/v2/allocate", "/V1/ALLOCATE", "//v1/allocate"]
NO_SANDBOX_PATHS = [f"/v1/sandboxes{rest}" for rest in ("", "/", "/a/b/c", "/a%2Fb", "/a/../b")]
ODD_PATHS = [
    "/%00",
    "/v1/nowhere/../allocate",
    "/v1/allocate%00",
    "/v1/allocate%20",
    "/" + "a" * 9999,
]
TRAILING_SLASHES = ["/v1/allocate/", "/v1/admin/stats/", "/healthz/"]


@pytest.mark.parametrize("method", ["GET", "POST", "DELETE", "OPTIONS"])
@pytest.mark.parametrize("path", [*NO_PATHS, *NO_SANDBOX_PATHS, *ODD_PATHS, *TRAILING_SLASHES])
def test_an_unknown_path_is_not_found(server: ServerProcess, path: str, method: str) -> None:
    headers = [token(server), ("X-Track-ID", "lost")]
    assert_error(send(server, method, path, headers), 404, "NOT_FOUND")


METHODS = ["GET", "POST", "PUT", "PATCH", "DELETE", "OPTIONS", "TRACE", "PROPFIND", "BREW"]


def _methods_of(path: str) -> set[str]:
    return {
        method
        for method, each in (*TRACK_ENDPOINTS, *ADMIN_ENDPOINTS, *OPEN_ENDPOINTS)
        if each == path
    }


@pytest.mark.parametrize(("right", "path"), [*TRACK_ENDPOINTS, *ADMIN_ENDPOINTS, *OPEN_ENDPOINTS])
def test_a_method_that_a_path_does_not_allow_is_405_with_the_allowed_ones(
    server: ServerProcess, right: str, path: str
) -> None:
    assert send(server, right, path).status in (200, 401)
    for method in set(METHODS) - _methods_of(path):
        answer = send(server, method, path)
        assert_error(answer, 405, "METHOD_NOT_ALLOWED")
        allowed = {name.strip() for name in answer.headers["allow"].split(",")}
        assert right in allowed
        assert method not in allowed


@pytest.mark.parametrize(("right", "path"), [*TRACK_ENDPOINTS, *ADMIN_ENDPOINTS])
def test_a_head_request_gets_no_body(server: ServerProcess, right: str, path: str) -> None:
    answer = send(server, "HEAD", path)
    assert answer.status == 405
    assert answer.body == b""
    assert answer.headers["allow"] == ", ".join(sorted(_methods_of(path)))
    assert answer.headers["x-request-id"]


def test_made_up_methods_do_not_become_labels_of_metrics(server: ServerProcess) -> None:
    for method in ("BREW-COFFEE", "BREW-TEA"):
        answer = send(server, method, "/healthz")
        assert_error(answer, 405, "METHOD_NOT_ALLOWED")
    metrics = send(server, "GET", "/metrics")
    assert metrics.status == 200
    assert b"BREW" not in metrics.body


@pytest.mark.parametrize(
    "path", ["/nowhere-at-all", f"/v1/sandboxes/{UNKNOWN_ID}", "/v1/sandboxes/some-id"]
)
def test_paths_do_not_become_labels_of_metrics(server: ServerProcess, path: str) -> None:
    headers = [token(server), ("X-Track-ID", "label-hunter")]
    assert send(server, "GET", path, headers).status == 404
    metrics = send(server, "GET", "/metrics").body.decode()
    assert "request_latency_seconds_count" in metrics
    assert path.rsplit("/", 1)[1] not in metrics
    assert "label-hunter" not in metrics


# What is not HTTP


HOST = b"Host: sandyard\r\nConnection: close\r\n"
NO_HTTP = {
    "no request at all": b"hello\r\n\r\n",
    "a method with a space": b"GET  /healthz HTTP/1.1\r\n" + HOST + b"\r\n",
    "a path with a raw byte": b"GET /v1/\xe9 HTTP/1.1\r\n" + HOST + b"\r\n",
    "another version": b"GET /healthz HTTP/9.9\r\n" + HOST + b"\r\n",
    "a NUL in a header": b"GET /healthz HTTP/1.1\r\n" + HOST + b"X-Track-ID: a\0b\r\n\r\n",
    "a header without a colon": b"GET /healthz HTTP/1.1\r\n" + HOST + b"nonsense\r\n\r\n",
    "a negative length": b"GET /healthz HTTP/1.1\r\n" + HOST + b"Content-Length: -1\r\n\r\n",
    "two lengths": b"GET /healthz HTTP/1.1\r\n"
    + HOST
    + b"Content-Length: 1\r\nContent-Length: 2\r\n\r\nab",
    "1 MB of header": b"GET /healthz HTTP/1.1\r\n" + HOST + b"X-A: " + b"a" * MIB + b"\r\n\r\n",
    "1000 headers": b"GET /healthz HTTP/1.1\r\n" + HOST + b"X-A: a\r\n" * 1000 + b"\r\n",
    "1 MB of path": b"GET /" + b"a" * MIB + b" HTTP/1.1\r\n" + HOST + b"\r\n",
}


@pytest.mark.parametrize("garbage", NO_HTTP.values(), ids=NO_HTTP)
def test_what_is_not_http_is_refused_and_the_server_lives_on(
    server: ServerProcess, garbage: bytes
) -> None:
    address = urlsplit(server.url)
    with socket.create_connection((address.hostname, address.port or 0), timeout=10) as connection:
        try:
            connection.sendall(garbage)
            answer = connection.recv(64 * 1024)
        except (BrokenPipeError, ConnectionResetError):
            answer = b""
    assert answer == b"" or re.match(rb"HTTP/1\.[01] 4\d\d ", answer), answer
    assert send(server, "GET", "/readyz").status == 200
