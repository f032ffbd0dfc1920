"""The rate limit of a track."""

from collections.abc import Iterator

import pytest

from tests.e2e.broker.requests import admin_token, allocate, assert_error, new_track, send
from tests.support.servers.processes import ServerProcess, sandyard_serve

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
