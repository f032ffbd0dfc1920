"""Which bills a usage gets, and when spending is warned of, at the edges."""

from collections.abc import Sequence
from dataclasses import replace
from datetime import date, datetime, timedelta
from decimal import Decimal
from itertools import count
from typing import Any

import pytest

from sandyard.kit.changes.transitions import Cause, Transition
from sandyard.kit.clock import utc_time
from sandyard.platform.billing.model import (
    Bill,
    Spending,
    SpendWarnings,
    SumBy,
    UsageVersion,
    bill_usage,
    sum_usages,
    warn_of_spending,
)
from sandyard.platform.notifications.model import NotificationType
from sandyard.platform.usage.model import (
    Consumption,
    PriceList,
    ServiceType,
    Usage,
    close_usage,
    midnight,
)

DAY = timedelta(days=1)
TODAY = date(2027, 1, 15)
NOON = midnight(TODAY) + timedelta(hours=12)
WARNING = {"currency": "EUR", "notification_id": "not-1"}
PRICES = PriceList(vcpu=Decimal("0.05"), memory_gb=Decimal("0.01"), storage_gb=Decimal("0.0001"))
OPEN = Usage(
    usage_id="usg-1",
    sandbox_id="sbx-1",
    user_account_id="100000000000",
    project_id="prj-1",
    service_type=ServiceType.RUNTIME,
    start_time=NOON - DAY,
    end_time=None,
    hourly_rate=Decimal("0.060000"),
    cpu=1,
    memory_gb=1,
    storage_gb=0,
    created_at=NOON - DAY,
    sequence=1,
)
CLOSED = replace(OPEN, end_time=NOON, milliseconds=86_400_000, sequence=2)


def billed(
    usage: Usage, bills: Sequence[Bill] = (), at: datetime = NOON
) -> tuple[Transition[Any], ...]:
    numbers = count(1)
    return bill_usage(usage, bills, new_id=lambda: f"bil-{next(numbers)}", cause=cause(at))


def cause(at: datetime = NOON) -> Cause:
    return Cause("job:billing", round(at.timestamp() * 1000))


def ended_at(end: datetime, usage: Usage = OPEN) -> Usage:
    return replace(close_usage(usage, ended_at=end, cause=cause()).result, sequence=2)


def kinds(transitions: Sequence[Transition[Any]]) -> list[str]:
    return [event.kind for each in transitions for event in each.events]


def test_an_open_usage_is_billed_up_to_the_last_midnight() -> None:
    [made] = billed(OPEN)
    bill = made.result
    assert (bill.billing_date, bill.usage_seconds) == (TODAY - DAY, 12 * 3600)
    assert (bill.amount, bill.hourly_rate) == (Decimal("0.720000"), OPEN.hourly_rate)
    assert (bill.created_at, bill.sequence) == (NOON, 1)
    assert (bill.usage_id, bill.sandbox_id, bill.project_id) == ("usg-1", "sbx-1", "prj-1")
    assert bill.service_type == "sandbox_runtime"
    assert bill.description == "sandbox_runtime of sbx-1, 43200 s"
    assert made.preconditions == (UsageVersion("usg-1", 1),)
    assert made.events[0].kind == "bill.created"
    assert made.events[0].data["billing_date"] == "2027-01-14"
    assert billed(OPEN, [bill]) == ()


@pytest.mark.parametrize("at", [NOON - DAY, midnight(TODAY) - timedelta(seconds=1)])
def test_the_day_that_goes_on_is_not_billed(at: datetime) -> None:
    assert billed(OPEN, at=at) == ()


def test_a_closed_usage_is_billed_whole_and_marked() -> None:
    transitions = billed(CLOSED)
    assert kinds(transitions) == ["bill.created", "bill.created", "usage.billed"]
    first, second, usage = (each.result for each in transitions)
    assert [first.billing_date, second.billing_date] == [TODAY - DAY, TODAY]
    assert first.amount + second.amount == Decimal("1.440000")
    assert (usage.is_billed, usage.sequence) == (True, 3)
    assert billed(usage, [first, second]) == ()


def test_days_that_are_billed_stay_as_they_are() -> None:
    [early] = [each.result for each in billed(OPEN)]
    assert kinds(billed(CLOSED, [early])) == ["bill.created", "usage.billed"]


def test_bills_beyond_the_true_end_are_corrected_by_others() -> None:
    days = [each.result for each in billed(OPEN, at=midnight(TODAY) + 2 * DAY)]
    assert len(days) == 3
    ended = ended_at(midnight(TODAY) + timedelta(hours=6))
    transitions = billed(ended, days)
    assert kinds(transitions) == ["bill.corrected", "bill.corrected", "usage.billed"]
    second, third = (each.result for each in transitions[:2])
    assert [each.before for each in transitions[:2]] == [None, None], "what was billed stays"
    assert [each.corrects for each in (second, third)] == [each.billing_id for each in days[1:]]
    assert [each.billing_date for each in (second, third)] == [TODAY, TODAY + DAY]
    assert second.consumed + days[1].consumed == Consumption(
        6 * 3600, 6 * 3_600_000, Decimal("0.36"), Decimal(6), Decimal(6)
    )
    assert third.consumed + days[2].consumed == Consumption()
    assert (third.amount, third.cpu_hours) == (Decimal("-1.44"), Decimal(-24))
    assert transitions[0].events[0].data["corrects"] == days[1].billing_id
    paid = sum((each.consumed for each in (*days, second, third)), Consumption())
    assert paid == ended.consumed_until(NOON)


def test_what_is_corrected_is_not_corrected_again() -> None:
    days = [each.result for each in billed(OPEN, at=midnight(TODAY) + 2 * DAY)]
    ended = ended_at(midnight(TODAY) + timedelta(hours=6))
    corrections = [each.result for each in billed(ended, days)[:2]]
    assert kinds(billed(ended, [*corrections, *days])) == ["usage.billed"]


def test_what_comes_to_nothing_is_not_billed() -> None:
    free = replace(CLOSED, hourly_rate=Decimal("0.000000"))
    assert kinds(billed(free)) == ["usage.billed"]


def test_a_run_between_two_seconds_of_the_clock_is_billed_as_one() -> None:
    """Such runs were free."""
    run = ended_at(OPEN.start_time + timedelta(milliseconds=760))
    [bill] = [each.result for each in billed(run) if isinstance(each.result, Bill)]
    assert (bill.usage_seconds, bill.usage_milliseconds) == (1, 1000)
    assert bill.amount == run.cost == Decimal("0.000017")


def test_bills_of_an_older_version_are_corrected_to_the_milliseconds() -> None:
    run = replace(OPEN, start_time=OPEN.start_time + timedelta(milliseconds=400))
    [early] = [each.result for each in billed(run)]
    old = replace(early, usage_seconds=12 * 3600, usage_milliseconds=None)
    end = ended_at(NOON, run)
    corrected = [each.result for each in billed(end, [old]) if isinstance(each.result, Bill)]
    assert sum((each.consumed for each in (old, *corrected)), Consumption()) == (
        end.consumed_until(NOON)
    )


def spending(threshold: str, warned: int = 0, month: date = date(2027, 1, 1)) -> Spending:
    warnings = SpendWarnings("100000000000", month, warned)
    return Spending(Decimal(threshold), [OPEN], warnings)


@pytest.mark.parametrize(
    ("threshold", "warned", "is_warned"),
    [("1.44", 0, True), ("1.440001", 0, False), ("1", 0, True), ("1", 1, False)],
)
def test_spending_is_warned_of_once_it_reaches_the_threshold(
    threshold: str, warned: int, is_warned: bool
) -> None:
    found = spending(threshold, warned)
    warning = warn_of_spending(found, **WARNING, cause=cause())
    assert (warning is not None) == is_warned
    if warning is not None:
        assert warning.preconditions == (found.warnings,)
        assert warning.result.related_entity_type == "billing"
        assert warning.result.type is NotificationType.WARNING
        assert "1.440000" in warning.result.message


def test_a_warning_writes_sums_out() -> None:
    for threshold, written in (("0.000001", "0.000001"), ("1E+0", "1")):
        warning = warn_of_spending(spending(threshold), **WARNING, cause=cause())
        assert warning is not None
        message = f"This month's cost is 1.440000 EUR; your threshold is {written}."
        assert warning.result.message == message


def test_only_what_the_month_came_to_counts() -> None:
    at = utc_time(midnight(date(2027, 2, 1)).timestamp() + 3600)
    reached, missed = (spending(each, month=date(2027, 2, 1)) for each in ("0.06", "0.07"))
    assert warn_of_spending(reached, **WARNING, cause=cause(at)) is not None
    assert warn_of_spending(missed, **WARNING, cause=cause(at)) is None


@pytest.mark.parametrize(
    ("by", "seconds"),
    [
        ("day", {"2027-01-14": 12 * 3600, "2027-01-15": 13 * 3600}),
        ("project", {"prj-1": 24 * 3600, "": 3600}),
        ("sandbox", {"sbx-1": 24 * 3600, "sbx-2": 3600}),
        ("service_type", {"sandbox_runtime": 24 * 3600, "storage": 3600}),
    ],
)
def test_usages_are_summed_up_as_their_bills_would_be(by: SumBy, seconds: dict[str, int]) -> None:
    storage = replace(
        OPEN,
        sandbox_id="sbx-2",
        project_id=None,
        service_type=ServiceType.STORAGE,
        start_time=NOON - timedelta(hours=1),
    )
    sums = sum_usages([OPEN, storage], since=TODAY - DAY, until=NOON, by=by)
    assert {key: each.seconds for key, each in sums.items()} == seconds
    assert sum(each.amount for each in sums.values()) == Decimal("1.500000")


def test_days_before_the_first_one_are_not_summed_up() -> None:
    sums = sum_usages([OPEN], since=TODAY, until=NOON, by="day")
    assert {key: each.seconds for key, each in sums.items()} == {"2027-01-15": 12 * 3600}
    assert sum_usages([OPEN], since=TODAY + DAY, until=NOON, by="day") == {}
