"""Reservations, holds and replacements over HTTP: answers, and what callers get wrong."""

import json
import time
from typing import Any

import pytest

from tests.e2e.broker.requests import (
    Answer,
    Header,
    admin_token,
    assert_error,
    inspect,
    lease,
    new_track,
    send,
    token,
)
from tests.support.servers.processes import ServerProcess

JSON: Header = ("Content-Type", "application/json")


def post(server: ServerProcess, call: str, body: Any, *headers: Header) -> Answer:
    sent = json.dumps(body).encode()
    return send(server, "POST", f"/v1/admin/{call}", [admin_token(server), JSON, *headers], sent)


def booking(**others: Any) -> dict[str, Any]:
    return {"count": 2, "track_prefix": "course-", "to": int(time.time()) + 3600} | others


def test_a_reservation_is_made_seen_used_and_cancelled(server: ServerProcess) -> None:
    key: Header = ("Idempotency-Key", new_track())
    course = new_track() + "-"
    asked = booking(track_prefix=course, note="room 4")
    asked["from"] = int(time.time())
    made = post(server, "reservations", asked, key)
    assert made.status == 201, made.body
    assert made.json["status"] == "filled"
    assert (made.json["kept"], made.json["missing"], made.json["note"]) == (2, 0, "room 4")
    again = post(server, "reservations", asked, key)
    assert (again.status, again.json) == (200, made.json)
    assert_error(post(server, "reservations", booking(), key), 409, "RESERVATION_EXISTS")
    own = made.json["reservation_id"]
    used = lease(server, f"{course}1")
    assert inspect(server, used["sandbox_id"])["reservation_id"] == own
    path = f"/v1/admin/reservations?from={asked['from']}&to={asked['to']}"
    listed = send(server, "GET", path, [admin_token(server)]).json["reservations"]
    assert own in [each["reservation_id"] for each in listed]
    one = f"/v1/admin/reservations/{own}"
    cancelled = send(server, "DELETE", one, [admin_token(server)])
    assert cancelled.json["status"] == "cancelled"
    assert send(server, "GET", one, [admin_token(server)]).json == cancelled.json


def test_too_many_are_refused_with_what_is_possible(server: ServerProcess) -> None:
    error = assert_error(post(server, "reservations", booking(count=90_000)), 409, "OVERBOOKED")
    assert error["details"]["possible"] < 90_000


@pytest.mark.parametrize(
    "wrong",
    [
        {"count": 0},
        {"count": "many"},
        {"count": 100_001},
        {"to": -1},
        {"to": None},
        {"track_prefix": "no blanks"},
        {"note": "n" * 501},
        {"note": "NUL \0"},
        {"until": 5},
    ],
)
def test_a_body_that_makes_no_sense_is_refused(
    server: ServerProcess, wrong: dict[str, Any]
) -> None:
    assert_error(post(server, "reservations", booking() | wrong), 400, "INVALID_REQUEST")


@pytest.mark.parametrize(
    "wrong", [{"to": 5}, {"track_prefix": None}, {"client": "acme"}, {"from": 4_102_444_800}]
)
def test_a_time_or_holder_that_makes_no_sense_is_refused(
    server: ServerProcess, wrong: dict[str, Any]
) -> None:
    assert_error(post(server, "reservations", booking() | wrong), 400, "INVALID_RESERVATION")


def test_an_unknown_reservation_is_not_found(server: ServerProcess) -> None:
    for method in ("GET", "DELETE"):
        answer = send(server, method, "/v1/admin/reservations/res-0", [admin_token(server)])
        assert_error(answer, 404, "RESERVATION_NOT_FOUND")


def allocate(server: ServerProcess, track: str) -> dict[str, Any]:
    headers = [token(server), ("X-Track-ID", track)]
    answer: dict[str, Any] = send(server, "POST", "/v1/allocate", headers).json
    return answer


def replace(server: ServerProcess, track: str, sandbox_id: str, body: bytes) -> Answer:
    headers = [token(server), ("X-Track-ID", track), JSON]
    return send(server, "POST", f"/v1/sandboxes/{sandbox_id}/replace", headers, body)


def test_a_broken_sandbox_is_replaced_and_held(server: ServerProcess) -> None:
    track = new_track()
    old = lease(server, track)
    new = replace(server, track, old["sandbox_id"], b'{"reason": "no network"}')
    assert new.status == 200, new.body
    assert new.json["sandbox_id"] != old["sandbox_id"]
    assert new.json["expires_at"] == old["expires_at"]
    assert allocate(server, track) == new.json
    assert replace(server, track, old["sandbox_id"], b'{"reason": "again"}').json == new.json
    held = inspect(server, old["sandbox_id"])
    assert (held["status"], held["status_reason"]) == ("held", "no network")
    stranger = replace(server, new_track(), old["sandbox_id"], b'{"reason": "mine"}')
    assert_error(stranger, 403, "NOT_SANDBOX_OWNER")
    released = send(
        server,
        "POST",
        f"/v1/admin/sandboxes/{old['sandbox_id']}/release",
        [admin_token(server)],
    )
    assert released.json["status"] == "pending_deletion"


@pytest.mark.parametrize(
    "body", [b"", b"{}", b'{"reason": ""}', b'{"reason": 5}', b'{"reason": "\\u0000"}', b"[]"]
)
def test_a_replacement_needs_a_reason(server: ServerProcess, body: bytes) -> None:
    track = new_track()
    old = lease(server, track)
    assert_error(replace(server, track, old["sandbox_id"], body), 400, "INVALID_REQUEST")
    assert allocate(server, track) == old


def test_one_is_held_and_quarantined_with_a_reason_and_many_by_name(server: ServerProcess) -> None:
    page = send(
        server, "GET", "/v1/admin/sandboxes?status=available&limit=2", [admin_token(server)]
    )
    first, second = page.json["sandboxes"]
    held = post(server, f"sandboxes/{first['sandbox_id']}/hold", {"reason": "for Ana"}).json
    assert (held["status"], held["status_reason"]) == ("held", "for Ana")
    assert held["held_until"] > time.time()
    restore = f"/v1/admin/sandboxes/{first['sandbox_id']}/restore"
    assert send(server, "POST", restore, [admin_token(server)]).json["status"] == "available"
    body = {"reason": "wrong image", "names": [second["name"]]}
    told = post(server, "bulk-quarantine?dry_run=true", body).json
    assert (told["sandbox_ids"], told["changed"]) == ([second["sandbox_id"]], 0)
    assert post(server, "bulk-quarantine", body).json["changed"] == 1
    assert inspect(server, second["sandbox_id"])["status_reason"] == "wrong image"
    hold = body | {"until": int(time.time()) + 60}
    assert post(server, "bulk-hold?status=stale", hold).json["changed"] == 1
    assert inspect(server, second["sandbox_id"])["status"] == "held"
    assert_error(post(server, "bulk-hold?status=lost", hold), 400, "INVALID_REQUEST")
    assert_error(post(server, "bulk-hold?status=stale", body), 400, "INVALID_REQUEST")
