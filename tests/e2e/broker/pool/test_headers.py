"""Headers that callers get wrong, over real HTTP: the right status and code, never a 500."""

import json

import pytest

from tests.e2e.broker.requests import (
    NOT_ASCII,
    TOO_LONG,
    TRACK_ENDPOINTS,
    Header,
    allocate,
    assert_error,
    inspect,
    lease,
    new_track,
    send,
    stats,
    token,
)
from tests.support.servers.processes import ServerProcess

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
def test_a_bad_track_id_is_refused(
    server: ServerProcess, values: list[str | bytes], name: str
) -> None:
    _assert_refused(server, "POST", "/v1/allocate", name, values)


@pytest.mark.parametrize("name", ["X-Track-ID", "X-Instruqt-Sandbox-ID"])
@pytest.mark.parametrize("kind", ["missing", "a slash", "sent twice"])
@pytest.mark.parametrize(("method", "path"), TRACK_ENDPOINTS)
def test_every_endpoint_of_tracks_refuses_a_bad_track_id(
    server: ServerProcess, method: str, path: str, kind: str, name: str
) -> None:
    _assert_refused(server, method, path, name, BAD_TRACK_IDS[kind])


def _assert_refused(
    server: ServerProcess, method: str, path: str, name: str, values: list[str | bytes]
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
def test_the_alias_speaks_for_its_track_at_the_endpoints_of_one_sandbox(
    server: ServerProcess, path: str
) -> None:
    winner = new_track()
    sandbox_id = lease(server, winner)["sandbox_id"]
    headers = [token(server), ("X-Track-ID", "other"), ("X-Instruqt-Sandbox-ID", winner)]
    method = "POST" if path else "GET"
    assert send(server, method, f"/v1/sandboxes/{sandbox_id}{path}", headers).status == 200


def test_the_track_id_is_ignored_if_there_is_a_good_alias(server: ServerProcess) -> None:
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
