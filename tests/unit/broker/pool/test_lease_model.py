"""Holds and replacements, at their exact edges."""

from dataclasses import replace

import pytest

from sandyard.broker.pool.errors import (
    AllocationExpiredError,
    NotSandboxOwnerError,
    ReplacementLimitError,
    SandboxNotFoundError,
    TransitionNotAllowedError,
)
from sandyard.broker.pool.lease_model import (
    HOLD_ENDED,
    Replacement,
    check_replacements,
    decide_hold,
    decide_hold_end,
    decide_replacement,
    replaceable,
)
from sandyard.broker.pool.model import Sandbox, Status
from tests.unit.broker.rows import FREE, HOUR, LEASED, NOW, PENDING, STALE, cause, told

UNTIL = NOW + HOUR
WHY = cause().because("no network")
HELD = decide_hold(LEASED, UNTIL, WHY).result


@pytest.mark.parametrize("row", [FREE, LEASED, PENDING, STALE, HELD])
def test_any_state_is_held_and_the_reason_told(row: Sandbox) -> None:
    held = decide_hold(row, UNTIL + 1, WHY)
    assert told(held) == ("sandbox.held", "operator", "no network")
    assert held.result.status is Status.HELD
    assert held.result.held_until == UNTIL + 1
    assert held.result.stale_reason is None
    assert held.result.next_attempt_at is None


def test_what_is_not_there_is_not_held() -> None:
    with pytest.raises(SandboxNotFoundError):
        decide_hold(None, UNTIL, WHY)


def test_a_hold_ends_at_its_very_end_by_the_deletion_of_what_a_track_has_had() -> None:
    assert decide_hold_end(HELD, cause(UNTIL - 1)) is None
    ended = decide_hold_end(HELD, cause(UNTIL))
    assert ended is not None
    assert ended.result.status is Status.PENDING_DELETION
    assert [(each.kind, each.reason) for each in ended.events] == [
        ("sandbox.hold_overdue", "no network"),
        ("deletion.requested", HOLD_ENDED),
    ]
    assert decide_hold_end(ended.result, cause(UNTIL + HOUR)) is None


def test_a_hold_ends_by_the_restore_of_what_no_track_has_had() -> None:
    ended = decide_hold_end(decide_hold(FREE, UNTIL, WHY).result, cause(UNTIL))
    assert ended is not None
    assert (ended.result.status, ended.result.status_reason) == (Status.AVAILABLE, None)
    assert [each.kind for each in ended.events] == ["sandbox.hold_overdue", "sandbox.restored"]


def test_a_hold_that_an_operator_prolongs_does_not_end() -> None:
    longer = decide_hold(HELD, UNTIL + HOUR, WHY).result
    assert decide_hold_end(longer, cause(UNTIL)) is None
    assert decide_hold_end(longer, cause(UNTIL + HOUR)) is not None


def test_a_track_replaces_the_sandbox_of_a_lease_a_limited_number_of_times() -> None:
    wanted = Replacement("t", "no network")
    _, second = decide_replacement(LEASED, FREE, held_until=UNTIL, cause=WHY)
    check_replacements(LEASED, wanted, most=1, now=NOW)
    with pytest.raises(ReplacementLimitError) as refused:
        check_replacements(second.result, wanted, most=1, now=NOW)
    assert refused.value.retry_after == HOUR
    for uncounted in (replace(wanted, by="operator"), replace(wanted, unless_probed=True)):
        check_replacements(second.result, uncounted, most=1, now=NOW)


def test_a_replacement_by_an_operator_does_not_count() -> None:
    _, second = decide_replacement(LEASED, FREE, held_until=UNTIL, cause=WHY, is_counted=False)
    assert second.result.replacements == 0


def test_only_the_owner_of_a_live_lease_gets_another() -> None:
    assert replaceable(LEASED, "t", NOW + HOUR - 1) is LEASED
    with pytest.raises(AllocationExpiredError):
        replaceable(LEASED, "t", NOW + HOUR)
    with pytest.raises(NotSandboxOwnerError):
        replaceable(LEASED, "another", NOW)
    with pytest.raises(TransitionNotAllowedError):
        replaceable(PENDING, "t", NOW)
    with pytest.raises(SandboxNotFoundError):
        replaceable(None, "t", NOW)


def test_the_lease_goes_over_with_its_beginning_and_end_and_the_old_one_is_held() -> None:
    free = replace(FREE, sandbox_id="other")
    old, new = decide_replacement(LEASED, free, held_until=UNTIL, cause=WHY)
    assert told(old) == ("lease.replaced", "operator", "no network")
    assert told(new) == ("lease.created", "operator", f"replaces {LEASED.sandbox_id}")
    assert (old.result.status, old.result.replaced_by) == (Status.HELD, "other")
    assert new.result.lease == replace(
        LEASED.lease,
        sandbox_id="other",
        name=free.name,
        external_id=free.external_id,
    )


@pytest.mark.parametrize("is_probed", [True, False])
def test_whether_the_other_one_was_probed_goes_with_it(is_probed: bool) -> None:
    old = replace(LEASED, probed_at=NOW - 5)
    _, new = decide_replacement(old, FREE, held_until=UNTIL, cause=WHY, is_probed=is_probed)
    assert new.result.probed_at == (WHY.at_ms // 1000 if is_probed else None)


def test_a_repeat_finds_what_was_replaced_also_after_its_end() -> None:
    old, _ = decide_replacement(LEASED, FREE, held_until=UNTIL, cause=WHY)
    assert replaceable(old.result, "t", NOW + 9 * HOUR) is old.result
