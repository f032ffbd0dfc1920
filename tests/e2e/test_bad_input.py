"""What callers get wrong, over real HTTP: the right status and code, one shape, never a 500."""

import asyncio
import base64
import hashlib
import http.client
import itertools
import json
import re
import socket
import time
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import quote, urlsplit

import pytest

from sandyard.kit.paging import encode_cursor
from tests.engines import create_database
from tests.servers import ServerProcess, run_sandyard, sandyard_serve

Header = tuple[str, str | bytes]
Body = bytes | Iterator[bytes] | None

MIB = 1024 * 1024
UNKNOWN_ID = "00000000-0000-4000-8000-000000000000"
SANE_REQUEST_ID = re.compile(r"[A-Za-z0-9._:-]{1,128}")

TRACK_DOORS = [
    ("POST", "/v1/allocate"),
    ("GET", f"/v1/sandboxes/{UNKNOWN_ID}"),
    ("POST", f"/v1/sandboxes/{UNKNOWN_ID}/mark-for-deletion"),
]
ACTIONS = ("quarantine", "restore", "release", "retry-deletion")
ADMIN_DOORS = [
    ("GET", "/v1/admin/sandboxes"),
    ("GET", f"/v1/admin/sandboxes/{UNKNOWN_ID}"),
    ("GET", "/v1/admin/stats"),
    ("POST", "/v1/admin/sync"),
    ("POST", "/v1/admin/cleanup"),
    ("POST", "/v1/admin/expire"),
    *(("POST", f"/v1/admin/sandboxes/{UNKNOWN_ID}/{action}") for action in ACTIONS),
]
OPEN_DOORS = [
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
    return send(server, "GET", "/v1/admin/stats", [admin_token(server)]).json


def listing(server: ServerProcess, query: str) -> Answer:
    return send(server, "GET", f"/v1/admin/sandboxes?{query}", [admin_token(server)])


def next_cursor(server: ServerProcess, query: str) -> str:
    cursor = listing(server, query).json["next_cursor"]
    assert isinstance(cursor, str)
    return cursor


# The track's name


BAD_TRACK_IDS: dict[str, list[str | bytes]] = {
    "missing": [],
    "empty": [""],
    "blank": ["  "],
    **{name: [value] for name, value in (TOO_LONG | NOT_ASCII).items()},
    "a space inside": ["my track"],
    "a slash": ["my/track"],
    "a comma": ["a,b"],
    "a quote": ["a'b"],
    "a hash": ["a#b"],
    "sent twice": ["a", "b"],
    "sent twice with the same value": ["a", "a"],
}


@pytest.mark.parametrize("name", ["X-Track-ID", "X-Instruqt-Sandbox-ID"])
@pytest.mark.parametrize("values", BAD_TRACK_IDS.values(), ids=BAD_TRACK_IDS)
@pytest.mark.parametrize(("method", "path"), TRACK_DOORS)
def test_a_bad_track_id_is_refused_at_every_door(
    server: ServerProcess, method: str, path: str, values: list[str | bytes], name: str
) -> None:
    headers = [token(server), *((name, value) for value in values)]
    error = assert_error(send(server, method, path, headers), 400, "INVALID_TRACK_ID")
    assert (name if values else "X-Track-ID").lower() in json.dumps(error).lower()


@pytest.mark.parametrize("values", list(BAD_TRACK_IDS.values())[1:], ids=list(BAD_TRACK_IDS)[1:])
def test_a_bad_alias_is_not_rescued_by_a_good_track_id(
    server: ServerProcess, values: list[str | bytes]
) -> None:
    bad: list[Header] = [("X-Instruqt-Sandbox-ID", value) for value in values]
    assert_error(allocate(server, new_track(), *bad), 400, "INVALID_TRACK_ID")


def test_the_alias_wins_when_both_come(server: ServerProcess) -> None:
    loser, winner = new_track(), new_track()
    leased = lease(server, loser, ("X-Instruqt-Sandbox-ID", winner))
    path = f"/v1/sandboxes/{leased['sandbox_id']}"
    assert inspect(server, leased["sandbox_id"])["allocated_to_track"] == winner
    mine = send(server, "GET", path, [token(server), ("X-Track-ID", winner)])
    assert mine.status == 200
    theirs = send(server, "GET", path, [token(server), ("X-Track-ID", loser)])
    assert_error(theirs, 403, "NOT_SANDBOX_OWNER")


@pytest.mark.parametrize("path", ["", "/mark-for-deletion"])
def test_the_alias_speaks_for_its_track_at_the_doors_of_one_sandbox(
    server: ServerProcess, path: str
) -> None:
    winner = new_track()
    sandbox_id = lease(server, winner)["sandbox_id"]
    headers = [token(server), ("X-Track-ID", "other"), ("X-Instruqt-Sandbox-ID", winner)]
    method = "POST" if path else "GET"
    assert send(server, method, f"/v1/sandboxes/{sandbox_id}{path}", headers).status == 200


def test_a_bad_track_id_behind_a_good_alias_is_not_looked_at(server: ServerProcess) -> None:
    winner = new_track()
    answer = allocate(server, "not/a/track", ("X-Instruqt-Sandbox-ID", winner))
    assert answer.status == 201
    assert inspect(server, answer.json["sandbox_id"])["allocated_to_track"] == winner


@pytest.mark.parametrize("track_id", ["a", "A.b_c:d-9", "x" * 128])
def test_a_track_id_of_every_allowed_kind_is_taken(server: ServerProcess, track_id: str) -> None:
    leased = lease(server, track_id)
    assert inspect(server, leased["sandbox_id"])["allocated_to_track"] == track_id


# The optional headers of a claim


OPTIONAL_HEADERS = {
    "Idempotency-Key": "INVALID_IDEMPOTENCY_KEY",
    "X-Sandbox-Name-Prefix": "INVALID_NAME_PREFIX",
    "X-Instruqt-Track-ID": "INVALID_TRACK_NAME",
}
BAD_VALUES: dict[str, list[str | bytes]] = {
    "empty": [""],
    "blank": ["  "],
    **{name: [value] for name, value in (TOO_LONG | NOT_ASCII).items()},
    "a tab inside": ["a\tb"],
    "sent twice": ["a", "b"],
    "sent twice with the same value": ["a", "a"],
}


@pytest.mark.parametrize("name", OPTIONAL_HEADERS)
@pytest.mark.parametrize("values", BAD_VALUES.values(), ids=BAD_VALUES)
def test_a_bad_optional_header_is_refused_and_nothing_is_claimed(
    server: ServerProcess, values: list[str | bytes], name: str
) -> None:
    before = stats(server)
    bad: list[Header] = [(name, value) for value in values]
    answer = allocate(server, new_track(), *bad)
    error = assert_error(answer, 400, OPTIONAL_HEADERS[name])
    assert name.lower() in json.dumps(error).lower()
    assert stats(server) == before


def test_a_key_with_a_space_is_refused(server: ServerProcess) -> None:
    answer = allocate(server, new_track(), ("Idempotency-Key", "a key"))
    assert_error(answer, 400, "INVALID_IDEMPOTENCY_KEY")


@pytest.mark.parametrize("key", ["k", "!\"#$%&'()*+,/;<=>?@[]^`{|}~\\", "~" * 128])
def test_a_key_of_every_allowed_kind_is_kept(server: ServerProcess, key: str) -> None:
    track_id = new_track()
    leased = lease(server, track_id, ("Idempotency-Key", key))
    assert inspect(server, leased["sandbox_id"])["idempotency_key"] == key
    repeat = allocate(server, track_id, ("Idempotency-Key", key))
    assert (repeat.status, repeat.json) == (200, leased)


@pytest.mark.parametrize("label", ["l", "Intro to DNS (2024)", "~" * 128])
def test_the_label_of_the_lab_is_kept(server: ServerProcess, label: str) -> None:
    leased = lease(server, new_track(), ("X-Instruqt-Track-ID", label))
    assert inspect(server, leased["sandbox_id"])["track_name"] == label


def test_the_key_defaults_to_the_track(server: ServerProcess) -> None:
    track_id = new_track()
    leased = lease(server, track_id)
    repeat = allocate(server, track_id, ("Idempotency-Key", track_id))
    assert (repeat.status, repeat.json) == (200, leased)


def test_another_track_with_the_same_key_gets_a_sandbox_of_its_own(server: ServerProcess) -> None:
    key = ("Idempotency-Key", "everybody-sends-this")
    one, other = new_track(), new_track()
    first, second = lease(server, one, key), lease(server, other, key)
    assert first["sandbox_id"] != second["sandbox_id"]
    assert allocate(server, one, key).json == first
    assert allocate(server, other, key).json == second


def test_a_track_whose_name_is_the_key_of_another_gets_its_own(server: ServerProcess) -> None:
    one, other = new_track(), new_track()
    first = lease(server, one, ("Idempotency-Key", other))
    assert lease(server, other)["sandbox_id"] != first["sandbox_id"]


# The name's prefix


@pytest.mark.parametrize("prefix", ["sandbox-05", "sandbox-051", "s"])
def test_a_prefix_narrows_the_claim(server: ServerProcess, prefix: str) -> None:
    leases = [lease(server, new_track(), ("X-Sandbox-Name-Prefix", prefix)) for _ in range(3)]
    assert all(leased["name"].startswith(prefix) for leased in leases)
    assert len({leased["sandbox_id"] for leased in leases}) == 3


NO_PREFIXES = ["nothing-has-this", "SANDBOX-", "andbox", "sandbox-0001x", "'", "\\", "~" * 128]
WILDCARDS = ["%", "_", "*", "sandbox_", "sandbox-*", "sandbox-?", "[s]"]


@pytest.mark.parametrize("prefix", [*NO_PREFIXES, *WILDCARDS])
def test_a_prefix_that_nothing_has_is_an_empty_pool(server: ServerProcess, prefix: str) -> None:
    before = stats(server)
    answer = allocate(server, new_track(), ("X-Sandbox-Name-Prefix", prefix))
    error = assert_error(answer, 409, "NO_SANDBOXES_AVAILABLE")
    assert error["retry_after"] >= 1
    assert stats(server) == before


def test_a_repeat_is_found_also_when_its_prefix_is_used_up(server: ServerProcess) -> None:
    only_one = ("X-Sandbox-Name-Prefix", "sandbox-0777")
    track_id = new_track()
    leased = lease(server, track_id, only_one)
    assert leased["name"] == "sandbox-0777"
    other = allocate(server, new_track(), only_one)
    assert_error(other, 409, "NO_SANDBOXES_AVAILABLE")
    repeat = allocate(server, track_id, only_one)
    assert (repeat.status, repeat.json) == (200, leased)


# Credentials


BAD_CREDENTIALS: dict[str, list[str | bytes]] = {
    "missing": [],
    "empty": [""],
    "a scheme alone": ["Bearer"],
    "a scheme and a blank": ["Bearer "],
    "a wrong token": ["Bearer wrong-token"],
    "no scheme": ["{token}"],
    "basic": ["Basic {token}"],
    "another scheme": ["Token {token}"],
    "a scheme with a colon": ["Bearer: {token}"],
    "no space": ["Bearer{token}"],
    "a tab for a space": ["Bearer\t{token}"],
    "more behind it": ["Bearer {token} more"],
    "more at its end": ["Bearer {token}x"],
    "less at its end": ["Bearer {less}"],
    "other letters": ["Bearer {upper}"],
    "quoted": ['Bearer "{token}"'],
    "two with a comma": ["Bearer {token},{token}"],
    "sent twice": ["Bearer {token}", "Bearer {token}"],
    "sent twice, one wrong": ["Bearer wrong-token", "Bearer {token}"],
    **{name: [f"Bearer {value}"] for name, value in TOO_LONG.items()},
    **{name: [b"Bearer " + value] for name, value in NOT_ASCII.items()},
    "no text at all": [b"Bearer \xff\xfe\xfd"],
}


def credentials(values: Sequence[str | bytes], secret: str) -> list[Header]:
    words = {"token": secret, "less": secret[:-1], "upper": secret.upper()}
    return [
        ("Authorization", value.format(**words) if isinstance(value, str) else value)
        for value in values
    ]


@pytest.mark.parametrize("values", BAD_CREDENTIALS.values(), ids=BAD_CREDENTIALS)
@pytest.mark.parametrize(("method", "path"), TRACK_DOORS)
def test_a_bad_credential_opens_no_door_of_tracks(
    server: ServerProcess, method: str, path: str, values: list[str | bytes]
) -> None:
    headers = [*credentials(values, server.track_token), ("X-Track-ID", "intruder")]
    assert_error(send(server, method, path, headers), 401, "UNAUTHORIZED")


@pytest.mark.parametrize("values", BAD_CREDENTIALS.values(), ids=BAD_CREDENTIALS)
@pytest.mark.parametrize(("method", "path"), ADMIN_DOORS)
def test_a_bad_credential_opens_no_door_of_operators(
    server: ServerProcess, method: str, path: str, values: list[str | bytes]
) -> None:
    headers = credentials(values, server.admin_token)
    assert_error(send(server, method, path, headers), 401, "UNAUTHORIZED")


@pytest.mark.parametrize(("method", "path"), TRACK_DOORS)
def test_the_token_of_operators_opens_no_door_of_tracks(
    server: ServerProcess, method: str, path: str
) -> None:
    headers = [admin_token(server), ("X-Track-ID", "operator")]
    assert_error(send(server, method, path, headers), 401, "UNAUTHORIZED")


@pytest.mark.parametrize(("method", "path"), ADMIN_DOORS)
def test_the_token_of_tracks_opens_no_door_of_operators(
    server: ServerProcess, method: str, path: str
) -> None:
    headers = [token(server), ("X-Track-ID", "curious")]
    assert_error(send(server, method, path, headers), 401, "UNAUTHORIZED")


@pytest.mark.parametrize("scheme", ["Bearer", "bearer", "BEARER", "Bearer "])
def test_the_scheme_is_read_in_any_case(server: ServerProcess, scheme: str) -> None:
    track = [("Authorization", f"{scheme} {server.track_token}"), ("X-Track-ID", new_track())]
    assert send(server, "POST", "/v1/allocate", track).status == 201
    admin = [("Authorization", f"{scheme} {server.admin_token}")]
    assert send(server, "GET", "/v1/admin/stats", admin).status == 200


@pytest.mark.parametrize(
    ("method", "path"),
    [
        ("POST", "/v1/allocate"),
        ("GET", "/v1/admin/sandboxes?limit=0"),
        ("GET", "/v1/admin/sandboxes?cursor=!&status=none"),
        ("POST", "/v1/admin/sync?force=maybe"),
    ],
)
def test_strangers_learn_nothing_about_their_other_mistakes(
    server: ServerProcess, method: str, path: str
) -> None:
    assert_error(send(server, method, path), 401, "UNAUTHORIZED")


def test_several_tokens_hold_at_once_so_that_they_can_be_rotated(tmp_path: Path) -> None:
    environment = {
        "BROKER_API_TOKEN": "old-track, new-track,,",
        "BROKER_ADMIN_TOKEN": "old-admin,new-admin",
    }

    def statuses(secret: str) -> tuple[int, int]:
        sent = [("Authorization", f"Bearer {secret}"), ("X-Track-ID", "t")]
        lookup = send(server, "GET", f"/v1/sandboxes/{UNKNOWN_ID}", sent)
        return lookup.status, send(server, "GET", "/v1/admin/stats", sent).status

    with sandyard_serve(tmp_path / "data", environment=environment) as server:
        assert statuses("old-track") == statuses("new-track") == (404, 401)
        assert statuses("old-admin") == statuses("new-admin") == (401, 200)
        for wrong in (
            "old-track, new-track,,",
            "old-track,new-track",
            "old-admin,new-admin",
            " new-track,",
            ",",
            "",
        ):
            assert statuses(wrong) == (401, 401)


# The request's id


SANE_IDS = ["a", "req-1.2_3:4", "A" * 128]
INSANE_IDS: dict[str, str | bytes] = {
    "empty": "",
    "a space inside": "a b",
    "markup": "<script>",
    "a quote": 'a"b',
    "a brace": '{"a":1}',
    **TOO_LONG,
    **NOT_ASCII,
}
ANY_DOOR = [
    *OPEN_DOORS,
    ("GET", "/v1/admin/stats"),
    ("POST", "/v1/allocate"),
    ("GET", "/nowhere"),
    ("DELETE", "/healthz"),
]


@pytest.mark.parametrize("request_id", SANE_IDS)
@pytest.mark.parametrize(("method", "path"), ANY_DOOR)
def test_a_sane_request_id_comes_back(
    server: ServerProcess, method: str, path: str, request_id: str
) -> None:
    answer = send(server, method, path, [("X-Request-ID", request_id)])
    assert answer.headers.get_all("x-request-id") == [request_id]
    if answer.status >= 400:
        assert answer.json["error"]["request_id"] == request_id


@pytest.mark.parametrize("request_id", INSANE_IDS.values(), ids=INSANE_IDS)
@pytest.mark.parametrize(("method", "path"), ANY_DOOR)
def test_an_insane_request_id_is_replaced(
    server: ServerProcess, method: str, path: str, request_id: str | bytes
) -> None:
    answer = send(server, method, path, [("X-Request-ID", request_id)])
    [given] = answer.headers.get_all("x-request-id", [])
    assert SANE_REQUEST_ID.fullmatch(given)
    assert given.encode() not in (request_id, str(request_id).encode())
    if answer.status >= 400:
        assert answer.json["error"]["request_id"] == given


@pytest.mark.parametrize(("method", "path"), ANY_DOOR)
def test_a_request_without_an_id_gets_one_of_its_own(
    server: ServerProcess, method: str, path: str
) -> None:
    given = [send(server, method, path).headers.get_all("x-request-id", []) for _ in range(2)]
    assert [len(ids) for ids in given] == [1, 1]
    assert given[0] != given[1]
    assert all(SANE_REQUEST_ID.fullmatch(one) for [one] in given)


def test_an_answer_has_one_request_id_however_many_were_sent(server: ServerProcess) -> None:
    answer = send(server, "GET", "/nowhere", [("X-Request-ID", "one"), ("X-Request-ID", "two")])
    assert_error(answer, 404, "NOT_FOUND")


def logged(server: ServerProcess, request_id: str) -> dict[str, Any]:
    """The line about this request; it is written after the answer, so it may need a moment."""
    deadline = time.monotonic() + 10
    while time.monotonic() < deadline:
        for line in server.log.read_text().splitlines():
            if f'"{request_id}"' in line:
                found: dict[str, Any] = json.loads(line)
                return found
        time.sleep(0.02)
    raise AssertionError(f"{request_id} is not in the log")


def test_the_log_has_the_request_id_that_the_caller_sent(server: ServerProcess) -> None:
    send(server, "GET", "/nowhere", [("X-Request-ID", "find-me-in-the-log")])
    line = logged(server, "find-me-in-the-log")
    assert (line["request_id"], line["outcome"]) == ("find-me-in-the-log", "NOT_FOUND")


def test_the_log_never_shows_a_credential(server: ServerProcess) -> None:
    for name, secret in (("wrong", "do-not-log-me"), ("right", server.track_token)):
        sent = [("Authorization", f"Bearer {secret}"), ("X-Request-ID", f"{name}-credential")]
        send(server, "POST", "/v1/allocate", [*sent, ("X-Track-ID", new_track())])
        logged(server, f"{name}-credential")
    log = server.log.read_text()
    for secret in ("do-not-log-me", server.track_token, server.admin_token):
        assert secret not in log


# Sandbox ids


BAD_SANDBOX_IDS = {
    "unknown": UNKNOWN_ID,
    "no uuid": "sandbox-0001",
    "a NUL": "%00",
    "a NUL inside": f"{UNKNOWN_ID}%00",
    "a newline": f"{UNKNOWN_ID}%0A",
    "a dot": ".",
    "two dots": "..",
    "two dots in disguise": "%2e%2e",
    "unicode": quote("пісочниця"),
    "an emoji": quote("🏖"),
    "no UTF-8": "%ff%fe",
    "no percent code": "%zz",
    "a blank": "%20",
    "SQL": quote("' OR 1=1 --"),
    "a template": quote("{sandbox_id}"),
    "129 characters": "a" * 129,
    "10 kB": "a" * 10_240,
}


@pytest.mark.parametrize("sandbox_id", BAD_SANDBOX_IDS.values(), ids=BAD_SANDBOX_IDS)
def test_an_id_that_no_sandbox_has_is_not_found_by_tracks(
    server: ServerProcess, sandbox_id: str
) -> None:
    headers = [token(server), ("X-Track-ID", "seeker")]
    for method, path in (("GET", ""), ("POST", "/mark-for-deletion")):
        answer = send(server, method, f"/v1/sandboxes/{sandbox_id}{path}", headers)
        assert_error(answer, 404, "SANDBOX_NOT_FOUND")


@pytest.mark.parametrize("sandbox_id", BAD_SANDBOX_IDS.values(), ids=BAD_SANDBOX_IDS)
def test_an_id_that_no_sandbox_has_is_not_found_by_operators(
    server: ServerProcess, sandbox_id: str
) -> None:
    headers = [admin_token(server)]
    for method, path in (("GET", ""), *(("POST", f"/{action}") for action in ACTIONS)):
        answer = send(server, method, f"/v1/admin/sandboxes/{sandbox_id}{path}", headers)
        assert_error(answer, 404, "SANDBOX_NOT_FOUND")


@pytest.mark.parametrize("change", [str.upper, lambda text: text.replace("-", ""), "{{{}}}".format])
def test_another_spelling_of_an_id_is_another_id(server: ServerProcess, change: Any) -> None:
    track_id = new_track()
    sandbox_id = change(lease(server, track_id)["sandbox_id"])
    headers = [token(server), ("X-Track-ID", track_id)]
    answer = send(server, "GET", f"/v1/sandboxes/{quote(sandbox_id)}", headers)
    assert_error(answer, 404, "SANDBOX_NOT_FOUND")


@pytest.mark.parametrize(("method", "suffix"), [("GET", ""), ("POST", "/mark-for-deletion")])
def test_the_sandbox_of_another_track_or_of_nobody_is_forbidden(
    server: ServerProcess, method: str, suffix: str
) -> None:
    taken = lease(server, new_track())["sandbox_id"]
    free = listing(server, "status=available&limit=1").json["sandboxes"][0]["sandbox_id"]
    headers = [token(server), ("X-Track-ID", new_track())]
    for sandbox_id in (taken, free):
        before = inspect(server, sandbox_id)
        answer = send(server, method, f"/v1/sandboxes/{sandbox_id}{suffix}", headers)
        assert_error(answer, 403, "NOT_SANDBOX_OWNER")
        assert inspect(server, sandbox_id) == before


@pytest.mark.parametrize(
    ("action", "needed"), [("restore", "stale"), ("release", "stale"), ("retry-deletion", "failed")]
)
def test_an_action_that_the_state_does_not_allow_names_both_states(
    server: ServerProcess, action: str, needed: str
) -> None:
    free = listing(server, "status=available&limit=1").json["sandboxes"][0]["sandbox_id"]
    path = f"/v1/admin/sandboxes/{free}/{action}"
    error = assert_error(
        send(server, "POST", path, [admin_token(server)]), 409, "TRANSITION_NOT_ALLOWED"
    )
    assert "available" in error["message"]
    assert needed in error["message"]
    assert inspect(server, free)["status"] == "available"


# Listings


BAD_LIMITS = ["0", "-1", "101", "1000000000", "abc", "", "%20", "1.5", "1e2", "0x10", "NaN"]


@pytest.mark.parametrize("limit", [*BAD_LIMITS, "null", "%00", "%ff", "9" * 5000, "1&limit=101"])
def test_a_limit_out_of_range_is_refused_by_name(server: ServerProcess, limit: str) -> None:
    error = assert_error(listing(server, f"limit={limit}"), 400, "INVALID_REQUEST")
    assert "limit" in error["message"]
    assert [mistake["field"] for mistake in error["details"]["mistakes"]] == ["limit"]


@pytest.mark.parametrize(("query", "count"), [("limit=1", 1), ("limit=100", 100), ("", 50)])
def test_a_limit_in_range_is_kept(server: ServerProcess, query: str, count: int) -> None:
    answer = listing(server, query)
    assert answer.status == 200
    assert len(answer.json["sandboxes"]) == count


@pytest.mark.parametrize(
    "status", ["deleted", "none", "", "AVAILABLE", "available,stale", "%00", "%ff", "'", "a" * 9999]
)
def test_an_unknown_status_is_refused_by_name(server: ServerProcess, status: str) -> None:
    error = assert_error(listing(server, f"status={status}"), 400, "INVALID_REQUEST")
    assert [mistake["field"] for mistake in error["details"]["mistakes"]] == ["status"]


def test_several_mistakes_are_all_named(server: ServerProcess) -> None:
    answer = listing(server, "limit=0&status=none&cursor=!")
    error = assert_error(answer, 400, "INVALID_REQUEST")
    fields = {mistake["field"] for mistake in error["details"]["mistakes"]}
    assert fields == {"limit", "status", "cursor"}


@pytest.mark.parametrize("force", ["maybe", "", "2", "%00"])
def test_a_force_that_is_neither_yes_nor_no_is_refused(server: ServerProcess, force: str) -> None:
    path = f"/v1/admin/sync?force={force}"
    error = assert_error(send(server, "POST", path, [admin_token(server)]), 400, "INVALID_REQUEST")
    assert [mistake["field"] for mistake in error["details"]["mistakes"]] == ["force"]


def test_cursors_lead_through_the_whole_listing_once(server: ServerProcess) -> None:
    seen: list[str] = []
    query = "limit=100"
    while True:
        page = listing(server, query).json
        seen += [row["sandbox_id"] for row in page["sandboxes"]]
        if page["next_cursor"] is None:
            break
        query = f"limit=100&cursor={page['next_cursor']}"
    assert len(seen) == len(set(seen)) == stats(server)["total"]


@pytest.mark.parametrize(
    ("made_for", "used_for"),
    [
        ("", "status=available"),
        ("status=available", ""),
        ("status=available", "status=allocated"),
        ("status=available", "status=stale"),
        ("status=allocated", "status=available"),
    ],
)
def test_a_cursor_of_another_listing_is_refused(
    server: ServerProcess, made_for: str, used_for: str
) -> None:
    for _ in range(2):
        lease(server, new_track())
    cursor = next_cursor(server, f"limit=1&{made_for}")
    assert listing(server, f"limit=1&{made_for}&cursor={cursor}").status == 200
    answer = listing(server, f"limit=1&{used_for}&cursor={cursor}")
    assert_error(answer, 400, "INVALID_CURSOR")


@pytest.mark.parametrize("status", ["", "status=available"])
def test_a_cursor_that_was_tampered_with_is_refused(server: ServerProcess, status: str) -> None:
    cursor = next_cursor(server, f"limit=1&{status}")
    middle = len(cursor) // 2
    swapped = {"A": "B"}
    for broken in (
        swapped.get(cursor[0], "A") + cursor[1:],
        cursor[:middle] + swapped.get(cursor[middle], "A") + cursor[middle + 1 :],
        cursor[:-4],
        cursor[4:],
        cursor[:11],
        cursor[:1],
        cursor + "AAAA",
        cursor + cursor,
        cursor[::-1],
        "AAAA",
        "A" * 1024,
    ):
        assert_error(listing(server, f"{status}&cursor={broken}"), 400, "INVALID_CURSOR")


@pytest.mark.parametrize("cursor", ["", "!", "%20", "a+b/", "a=", "%00", "%ff", "ü", "A" * 1025])
def test_a_cursor_that_could_never_be_one_is_refused(server: ServerProcess, cursor: str) -> None:
    answer = listing(server, f"cursor={quote(cursor, safe='%')}")
    error = assert_error(answer, 400, "INVALID_REQUEST")
    assert [mistake["field"] for mistake in error["details"]["mistakes"]] == ["cursor"]


@pytest.mark.parametrize(
    "position", [[], [1], [None], [[]], [{}], [True], ["a", "b"], ["a", "b", "c"], [1e308]]
)
def test_a_forged_cursor_with_a_place_that_cannot_be_is_refused(
    server: ServerProcess, position: list[Any]
) -> None:
    cursor = encode_cursor("sandboxes all", position)
    assert_error(listing(server, f"cursor={cursor}"), 400, "INVALID_CURSOR")


@pytest.mark.parametrize("inside", [b"[", b"nonsense", b"\xff\xfe", b'{"a":1}', b"7", b"null"])
def test_a_forged_cursor_that_holds_no_place_is_refused(
    server: ServerProcess, inside: bytes
) -> None:
    seal = hashlib.blake2s(inside, digest_size=8, key=b"sandboxes all").digest()
    cursor = base64.urlsafe_b64encode(seal + inside).decode().rstrip("=")
    assert_error(listing(server, f"cursor={cursor}"), 400, "INVALID_CURSOR")


@pytest.fixture(scope="module")
def server_on_postgresql(
    postgres_url: str, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[ServerProcess]:
    folder = tmp_path_factory.mktemp("postgresql")
    environment = {"DATABASE_URL": asyncio.run(create_database(postgres_url))}
    upgrade = run_sandyard("db", "upgrade", environment=environment, log=folder / "upgrade.log")
    upgrade.communicate(timeout=30)
    assert upgrade.returncode == 0
    with sandyard_serve(folder / "data", environment=environment) as server:
        yield server


@pytest.mark.parametrize("place", ["\0", "a\0b", "é", "z" * 500, "'; --"])
@pytest.mark.parametrize("engine", ["server", "server_on_postgresql"])
def test_a_forged_cursor_with_an_odd_place_is_no_outage_on_any_engine(
    request: pytest.FixtureRequest, engine: str, place: str
) -> None:
    server: ServerProcess = request.getfixturevalue(engine)
    answer = listing(server, f"cursor={encode_cursor('sandboxes all', [place])}")
    assert answer.status in (200, 400), answer.body


# Bodies


def chunks(size: int) -> Iterator[bytes]:
    whole, rest = divmod(size, 64 * 1024)
    return iter([b"x" * 64 * 1024] * whole + [b"x" * rest] * bool(rest))


def body_of(size: int, *, chunked: bool) -> Body:
    return chunks(size) if chunked else b"x" * size


BODY_DOORS = [
    ("POST", "/v1/allocate"),
    ("POST", f"/v1/sandboxes/{UNKNOWN_ID}/mark-for-deletion"),
    ("POST", "/v1/admin/expire"),
    ("GET", "/v1/admin/stats"),
    ("GET", "/healthz"),
]


@pytest.mark.parametrize("chunked", [False, True], ids=["with its length", "in chunks"])
@pytest.mark.parametrize("size", [MIB + 1, 10 * MIB], ids=["1 byte too large", "10 MB"])
@pytest.mark.parametrize(("method", "path"), BODY_DOORS)
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


NO_PATHS = ["/", "/v1", "/v1/", "/v1/nowhere", "/v2/allocate", "/V1/ALLOCATE", "//v1/allocate"]
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


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize(("right", "path"), [*TRACK_DOORS, *ADMIN_DOORS, *OPEN_DOORS])
def test_a_method_that_a_path_does_not_take_is_told_which_it_takes(
    server: ServerProcess, right: str, path: str, method: str
) -> None:
    answer = send(server, method, path)
    if method == right:
        assert answer.status in (200, 401)
        return
    assert_error(answer, 405, "METHOD_NOT_ALLOWED")
    allowed = {name.strip() for name in answer.headers["allow"].split(",")}
    assert right in allowed
    assert method not in allowed


@pytest.mark.parametrize(("right", "path"), [*TRACK_DOORS, *ADMIN_DOORS])
def test_a_head_request_gets_no_body(server: ServerProcess, right: str, path: str) -> None:
    answer = send(server, "HEAD", path)
    assert answer.status == 405
    assert answer.body == b""
    assert answer.headers["allow"] == right
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


# The rate limit


@pytest.fixture(scope="module")
def limited_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    folder = tmp_path_factory.mktemp("limited")
    environment = {"RATE_LIMIT_PER_TRACK": "2/minute"}
    with sandyard_serve(folder / "data", environment=environment) as server:
        assert send(server, "POST", "/v1/admin/sync", [admin_token(server)]).status == 200
        yield server


def test_the_call_above_the_limit_is_told_how_long_to_wait(limited_server: ServerProcess) -> None:
    busy, other = new_track(), new_track()
    assert [allocate(limited_server, busy).status for _ in range(2)] == [201, 200]
    error = assert_error(allocate(limited_server, busy), 429, "RATE_LIMIT_EXCEEDED")
    assert 1 <= error["retry_after"] <= 60
    assert allocate(limited_server, other).status == 201


def test_neither_an_alias_nor_a_new_key_gets_around_the_limit(
    limited_server: ServerProcess,
) -> None:
    busy = new_track()
    alias = ("X-Instruqt-Sandbox-ID", busy)
    assert allocate(limited_server, busy).status == 201
    assert allocate(limited_server, new_track(), alias).status == 200
    for last in (
        allocate(limited_server, busy, ("Idempotency-Key", "another")),
        allocate(limited_server, new_track(), alias),
    ):
        assert_error(last, 429, "RATE_LIMIT_EXCEEDED")


def test_a_call_that_is_refused_otherwise_does_not_count(limited_server: ServerProcess) -> None:
    track_id = new_track()
    for _ in range(3):
        bad = allocate(limited_server, track_id, ("Idempotency-Key", ""))
        assert_error(bad, 400, "INVALID_IDEMPOTENCY_KEY")
    assert allocate(limited_server, track_id).status == 201


def test_there_is_no_limit_unless_one_is_set(server: ServerProcess) -> None:
    track_id = new_track()
    assert {allocate(server, track_id).status for _ in range(30)} == {200, 201}
