"""Which sandboxes a bulk deletion takes, and how each changes."""

from dataclasses import replace

import pytest

from sandyard.broker.pool.action_model import (
    BULK_DELETE,
    Action,
    BulkFilter,
    decide_action,
    decide_bulk_delete,
)
from sandyard.broker.pool.model import Sandbox, StaleReason, Status
from tests.unit.broker.rows import FREE, LEASED, NOW, PENDING, STALE, cause, told

FAILED = replace(PENDING, status=Status.DELETION_FAILED)


def test_a_filter_takes_the_state_that_it_names() -> None:
    wanted = BulkFilter(Status.STALE)
    assert [wanted.matches(row) for row in (STALE, FREE, LEASED)] == [True, False, False]


@pytest.mark.parametrize(("since", "matches"), [(NOW - 1, False), (NOW, True), (None, True)])
def test_a_filter_takes_what_has_not_changed_since(since: int | None, matches: bool) -> None:
    assert BulkFilter(Status.ALLOCATED, unchanged_since=since).matches(LEASED) is matches


def test_a_filter_takes_stale_ones_of_its_reason() -> None:
    assert not BulkFilter(Status.STALE, stale_reason=StaleReason.MISSING).matches(STALE)
    assert BulkFilter(Status.STALE, stale_reason=StaleReason.QUARANTINED).matches(STALE)


@pytest.mark.parametrize(
    ("row", "action"),
    [
        (LEASED, Action.RELEASE),
        (STALE, Action.RELEASE),
        (FAILED, Action.RETRY_DELETION),
    ],
)
def test_a_row_changes_as_by_the_action_on_it_alone(row: Sandbox, action: Action) -> None:
    why = cause().because(BULK_DELETE)
    assert decide_bulk_delete(row, why) == decide_action(row, action, why)
    assert told(decide_bulk_delete(row, why))[2] == BULK_DELETE
