"""Probes: what leaves the pool after how many failures, and what comes back."""

import pytest

from sandyard.broker.pool.model import Sandbox, StaleReason, Status
from sandyard.broker.probes.model import (
    RECOVERED,
    UNPROBED_SEC,
    decide_passed_at_claim,
    decide_probed,
    is_probed,
    may_be_unprobed,
)
from tests.unit.broker.rows import FREE, LEASED, PENDING, STALE, cause, told

THRESHOLD = 3


def probed(row: Sandbox, failure: str | None) -> Sandbox:
    transition = decide_probed(row, failure, threshold=THRESHOLD, cause=cause())
    return row if transition is None else transition.result


def failed_times(times: int) -> Sandbox:
    row = FREE
    for _ in range(times):
        row = probed(row, "refused")
    return row


def test_the_threshold_s_failure_quarantines_and_none_before() -> None:
    before = failed_times(THRESHOLD - 1)
    assert (before.status, before.probe_failures) == (Status.AVAILABLE, THRESHOLD - 1)
    last = decide_probed(before, "refused", threshold=THRESHOLD, cause=cause())
    assert last is not None
    assert told(last) == ("sandbox.quarantined", "operator", "probe: refused")
    assert last.result.status is Status.STALE
    assert last.result.stale_reason is StaleReason.QUARANTINED


def test_a_pass_between_failures_begins_the_count_anew() -> None:
    assert probed(failed_times(THRESHOLD - 1), None).probe_failures == 0


def test_what_passes_without_a_failure_before_changes_nothing() -> None:
    assert decide_probed(FREE, None, threshold=THRESHOLD, cause=cause()) is None


def test_what_a_probe_quarantined_comes_back_when_it_passes() -> None:
    quarantined = failed_times(THRESHOLD)
    assert probed(quarantined, "refused") is quarantined
    back = decide_probed(quarantined, None, threshold=THRESHOLD, cause=cause())
    assert back is not None
    assert told(back) == ("sandbox.restored", "operator", RECOVERED)
    assert back.result.status is Status.AVAILABLE


@pytest.mark.parametrize("row", [LEASED, PENDING, STALE])
def test_leases_deletions_and_an_operator_s_quarantine_are_left_alone(row: Sandbox) -> None:
    assert not is_probed(row)
    for failure in (None, "refused"):
        assert decide_probed(row, failure, threshold=1, cause=cause()) is None


def test_a_lease_may_be_unheard_of_up_to_the_very_second() -> None:
    end = LEASED.allocated_at + UNPROBED_SEC
    assert may_be_unprobed(LEASED.lease, now=end - 0.001)
    assert not may_be_unprobed(LEASED.lease, now=end)


def test_that_it_passed_at_its_claim_changes_nothing_else() -> None:
    passed = decide_passed_at_claim(LEASED, cause())
    assert told(passed) == ("lease.probed", "operator", None)
    assert passed.result.probed_at == cause().at_ms // 1000
    assert passed.result.lease == LEASED.lease
