"""What the provider's list changes in the pool."""

import pytest

from sandyard.broker.pool.model import Listed, Sandbox, StaleReason, Status
from sandyard.broker.pool.provider_model import (
    decide_discovery,
    decide_listing,
    is_confirmed,
    loses_too_many,
)
from sandyard.kit.changes.events import Effect
from tests.unit.broker.rows import FREE, LEASED, NOW, PENDING, STALE, cause, told

LISTED = Listed("e1", "lab")
RENAMED = Listed("e1", "aws")


@pytest.mark.parametrize(
    ("missing", "of", "too_many"),
    [(5, 5, False), (6, 6, True), (6, 12, False), (7, 12, True), (0, 0, False), (100, 199, True)],
)
def test_more_than_half_and_more_than_five_is_too_many(
    missing: int, of: int, too_many: bool
) -> None:
    assert loses_too_many(missing, of=of) is too_many


def test_a_discovered_sandbox_counts_from_the_time_on() -> None:
    found = decide_discovery(Listed("e1", "lab"), lab_duration_hours=1, cause=cause(NOW + 5))
    assert found.before is None
    assert found.result.sequence == NOW + 5
    assert found.result.created_at == found.result.last_synced == NOW + 5
    [event] = found.events
    assert (event.kind, event.effect) == ("sandbox.discovered", Effect.FULL)
    assert "last_synced" not in event.data


def test_a_list_makes_missing_what_is_free_and_brings_back_what_was_missing() -> None:
    missing = decide_listing(FREE, None, cause=cause())
    assert missing is not None
    assert missing.events[0].kind == "sandbox.missing"
    assert missing.result.stale_reason is StaleReason.MISSING
    back = decide_listing(missing.result, RENAMED, cause=cause(NOW + 7))
    assert back is not None
    assert back.events[0].kind == "sandbox.restored"
    assert (back.result.status, back.result.last_synced) == (Status.AVAILABLE, NOW + 7)
    assert (back.result.name, back.result.stale_reason) == ("aws", None)
    for row, listed in (
        (FREE, LISTED),
        (missing.result, None),
        (STALE, LISTED),
        (STALE, None),
        (LEASED, None),
        (PENDING, None),
    ):
        assert decide_listing(row, listed, cause=cause()) is None


@pytest.mark.parametrize("row", [FREE, STALE], ids=["free", "quarantined"])
def test_a_list_renames_what_nobody_has(row: Sandbox) -> None:
    renamed = decide_listing(row, RENAMED, cause=cause(NOW + 7, "job:sync"))
    assert renamed is not None
    assert told(renamed) == ("sandbox.renamed", "job:sync", None)
    assert renamed.events[0].data == {"name": "aws", "updated_at": NOW + 7}
    assert (renamed.result.status, renamed.result.last_synced) == (row.status, NOW + 7)


@pytest.mark.parametrize("row", [LEASED, PENDING], ids=["leased", "pending"])
def test_what_a_track_was_told_is_not_renamed(row: Sandbox) -> None:
    assert decide_listing(row, RENAMED, cause=cause()) is None


def test_a_list_confirms_what_nobody_uses() -> None:
    assert [is_confirmed(row, LISTED) for row in (FREE, STALE, LEASED, PENDING)] == [
        True,
        True,
        False,
        False,
    ]
    assert not is_confirmed(FREE, None)
