"""Sandbox ids, limits and cursors that callers get wrong."""

import asyncio
import base64
import hashlib
from collections.abc import Iterator
from typing import Any
from urllib.parse import quote

import pytest

from sandyard.kit.paging import encode_cursor
from tests.e2e.broker.requests import (
    ACTIONS,
    UNKNOWN_ID,
    admin_token,
    assert_error,
    inspect,
    lease,
    listing,
    new_track,
    next_cursor,
    send,
    stats,
    token,
)
from tests.support.servers.processes import ServerProcess, run_sandyard, sandyard_serve
from tests.support.storage.engines import create_database

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


@pytest.mark.parametrize("limit", [*BAD_LIMITS, "null", "%00", "%ff", "9" * 5000])
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
    upgrade.communicate(timeout=60)
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
