"""Longer leases over HTTP: answers, and what callers get wrong."""

import json

import pytest

from tests.e2e.broker.requests import Answer, Header, assert_error, new_track, send, token
from tests.support.servers.processes import ServerProcess

JSON: Header = ("Content-Type", "application/json")


def allocate(server: ServerProcess, track: str, *headers: Header) -> Answer:
    return send(server, "POST", "/v1/allocate", [token(server), ("X-Track-ID", track), *headers])


def extend(
    server: ServerProcess, track: str, sandbox_id: str, body: bytes, key: str = ""
) -> Answer:
    headers = [token(server), ("X-Track-ID", track), JSON]
    headers += [("Idempotency-Key", key)] if key else []
    return send(server, "POST", f"/v1/sandboxes/{sandbox_id}/extend", headers, body)


def test_a_lease_is_extended_once_for_each_key(server: ServerProcess) -> None:
    track = new_track()
    lease = allocate(server, track).json
    for _ in range(2):
        answer = extend(server, track, lease["sandbox_id"], b'{"minutes": 30}', "more")
        assert answer.status == 200
        assert answer.json == lease | {"expires_at": lease["expires_at"] + 1800}
    assert allocate(server, track).json == answer.json


def test_it_is_refused_past_the_bound_and_to_others(server: ServerProcess) -> None:
    track = new_track()
    lease = allocate(server, track, ("X-Lab-Minutes", "60")).json
    assert lease["expires_at"] == lease["allocated_at"] + 3600
    too_long = extend(server, track, lease["sandbox_id"], b'{"minutes": 1381}')
    error = assert_error(too_long, 409, "LEASE_TOO_LONG")
    assert error["details"] == {"possible_minutes": 1380}
    stranger = extend(server, new_track(), lease["sandbox_id"], b'{"minutes": 1}')
    assert_error(stranger, 403, "NOT_SANDBOX_OWNER")
    send(
        server,
        "POST",
        f"/v1/sandboxes/{lease['sandbox_id']}/mark-for-deletion",
        [token(server), ("X-Track-ID", track)],
    )
    late = extend(server, track, lease["sandbox_id"], b'{"minutes": 1}')
    assert_error(late, 409, "TRANSITION_NOT_ALLOWED")


NO_MINUTES = [
    *(b"", b"{", b"{}", b"[]"),
    *(b'{"minutes": %b}' % each for each in (b"0", b"-5", b"1.5", b'"many"', b"1e9", b"null")),
    b'{"minutes": 5, "hours": 1}',
]


@pytest.mark.parametrize("body", NO_MINUTES)
def test_a_body_that_says_no_minutes_is_refused(server: ServerProcess, body: bytes) -> None:
    track = new_track()
    lease = allocate(server, track).json
    assert_error(extend(server, track, lease["sandbox_id"], body), 400, "INVALID_REQUEST")
    assert allocate(server, track).json == lease


@pytest.mark.parametrize("minutes", ["0", "-1", "1.5", "", "many", "1441", "9999999", " 5x"])
def test_minutes_that_no_lease_may_last_are_refused(server: ServerProcess, minutes: str) -> None:
    answer = allocate(server, new_track(), ("X-Lab-Minutes", minutes))
    assert_error(answer, 400, "INVALID_LAB_MINUTES")


def test_minutes_are_sent_once(server: ServerProcess) -> None:
    twice = [("X-Lab-Minutes", "5"), ("X-Lab-Minutes", "5")]
    assert_error(allocate(server, new_track(), *twice), 400, "INVALID_LAB_MINUTES")


def test_a_body_is_not_read_before_the_token(server: ServerProcess) -> None:
    path = "/v1/sandboxes/x/extend"
    answer = send(server, "POST", path, [JSON], json.dumps({"minutes": 0}).encode())
    assert_error(answer, 401, "UNAUTHORIZED")
