"""Money: days add up to what a usage cost, to the last millionth."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta, timezone
from decimal import ROUND_HALF_EVEN, Decimal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sandyard.kit.changes.transitions import Cause
from sandyard.platform.usage.model import (
    Consumer,
    Consumption,
    PriceList,
    ServiceType,
    Usage,
    billable_until,
    cap_usage,
    close_usage,
    cost_of,
    mark_billed,
    midnight,
    open_usage,
    record_run,
    record_storage,
    shares_by_day,
    storage_usage,
)

START = datetime(2026, 3, 1, 22, 0, 0, tzinfo=UTC)
PRICES = PriceList(vcpu=Decimal("0.05"), memory_gb=Decimal("0.01"), storage_gb=Decimal("0.0001"))

moments = st.integers(1_767_225_600, 1_798_675_200_000).map(
    lambda at: datetime.fromtimestamp(at % 31_449_600 + 1_767_225_600 + (at % 997) / 997, UTC)
)
"""In 2026, with parts of a second."""
lengths = st.timedeltas(min_value=timedelta(0), max_value=timedelta(days=40))
rates = st.decimals(min_value=0, max_value=1000, places=6)


def milliseconds_of(length: timedelta) -> int:
    """Of a run."""
    return max(1000, length // timedelta(milliseconds=1))


def usage(
    start: datetime = START, end: datetime | None = None, rate: Decimal = Decimal("0.06")
) -> Usage:
    return Usage(
        usage_id="usg-1",
        sandbox_id="sbx-1",
        user_account_id="1",
        project_id=None,
        service_type=ServiceType.RUNTIME,
        start_time=start,
        end_time=end,
        hourly_rate=rate,
        cpu=1.7,
        memory_gb=0.5,
        storage_gb=0.123456789,
        created_at=start,
        milliseconds=None if end is None else milliseconds_of(end - start),
    )


@given(moments, lengths, rates)
def test_the_days_add_up_to_the_milliseconds_at_the_rate(
    start: datetime, length: timedelta, rate: Decimal
) -> None:
    ended = usage(start, start + length, rate)
    shares = list(shares_by_day(ended, until=billable_until(ended, now=start + length)))
    counted = milliseconds_of(length)
    total = sum((share.consumed for share in shares), Consumption())
    assert (total.milliseconds, total.seconds) == (counted, counted // 1000)
    assert total == ended.consumed_until(start + length)
    assert total.amount == cost_of(counted, rate)
    assert cost_of(counted, rate) == (rate * counted / 3_600_000).quantize(
        Decimal("0.000001"), ROUND_HALF_EVEN
    )
    for share in shares:
        assert 0 < share.consumed.milliseconds <= 86_400_000
        assert min(share.consumed.amount, share.consumed.cpu_hours) >= 0
    assert len({share.day for share in shares}) == len(shares)


@given(moments, lengths, rates, st.data())
def test_days_that_were_billed_while_it_went_on_stay_as_they_were(
    start: datetime, length: timedelta, rate: Decimal, data: st.DataObject
) -> None:
    end = start + length
    now = start + data.draw(st.timedeltas(timedelta(0), length))
    open_then = usage(start, None, rate)
    early = list(shares_by_day(open_then, until=billable_until(open_then, now=now)))
    closed = usage(start, end, rate)
    whole = list(shares_by_day(closed, until=end))
    assert whole[: len(early)] == early


def test_it_is_split_at_utc_midnight() -> None:
    shares = list(
        shares_by_day(usage(end=START + timedelta(hours=3)), until=midnight(START.date()))
    )
    assert shares == []
    ended = usage(end=START + timedelta(hours=3))
    found = [
        (s.day.day, s.consumed.seconds, s.consumed.amount)
        for s in shares_by_day(ended, until=ended.end_time or START)
    ]
    assert found == [(1, 7200, Decimal("0.120000")), (2, 3600, Decimal("0.060000"))]


@pytest.mark.parametrize(
    ("seconds", "rate", "cost"),
    [
        (1, "0.000001", "0.000000"),
        (1800, "0.000001", "0.000000"),
        (5400, "0.000001", "0.000002"),
        (3600, "0.123456", "0.123456"),
        (86_400, "1000", "24000.000000"),
    ],
)
def test_costs_are_rounded_half_to_even(seconds: int, rate: str, cost: str) -> None:
    assert cost_of(1000 * seconds, Decimal(rate)) == Decimal(cost)


def test_hours_are_rounded_as_costs_are() -> None:
    ended = replace(usage(), cpu=1.1, memory_gb=0.5, storage_gb=0.000001)
    consumed = ended.consumed_until(START + timedelta(seconds=5400))
    assert str(consumed.cpu_hours) == "1.650000", "1.1 is no binary number"
    assert str(consumed.memory_hours) == "0.750000"
    assert str(consumed.storage_hours) == "0.000002", "half to even"


def test_the_price_list_makes_rates() -> None:
    assert PRICES.of_running(cpu=2, memory_gb=0.5) == Decimal("0.105000")
    assert PRICES.of_storage(size_bytes=5 * 2**30) == Decimal("0.000500")


@pytest.mark.parametrize(
    ("size_bytes", "cost"),
    [
        (0, "0.000000"),
        (1, "0.000000"),
        (3 * 2**20, "0.000007"),
        (5 * 2**20, "0.000012"),
        (15 * 2**20, "0.000035"),
        (2**30, "0.002400"),
    ],
)
def test_a_day_of_storage_costs_by_bytes_and_only_the_cost_is_rounded(
    size_bytes: int, cost: str
) -> None:
    usage = storage_usage(
        Consumer("sbx-1", "1", None),
        usage_id="usg-1",
        size_bytes=size_bytes,
        prices=PRICES,
        since=START,
        until=START + timedelta(days=1),
    )
    assert usage is not None
    assert str(usage.cost) == cost
    assert usage.rate == PRICES.storage_gb * size_bytes / 2**30


def test_a_rate_of_six_places_needs_no_more() -> None:
    assert (opened().rate, opened().exact_rate) == (Decimal("0.105"), None)


@pytest.mark.parametrize(
    ("start", "moment", "milliseconds"),
    [
        (0, 0, 0),
        (0, 0.001, 1000),
        (0, 1, 1000),
        (0, 1.0019, 1001),
        (0.9, 1.95, 1050),
        (0.1, 0.9, 1000),
        (0, 59.999, 59_999),
        (0, 60, 60_000),
        (0, 3600, 60_000),
        (5, 4, 0),
    ],
)
def test_milliseconds_up_to_the_moment_or_the_end_and_a_second_at_least(
    start: float, moment: float, milliseconds: int
) -> None:
    """It ends after a minute."""
    ended = usage(START + timedelta(seconds=start), START + timedelta(seconds=60))
    at = START + timedelta(seconds=moment)
    assert ended.milliseconds_until(at) == milliseconds
    assert ended.cost_until(at) == cost_of(milliseconds, ended.hourly_rate)


@given(moments, st.lists(st.timedeltas(timedelta(0), timedelta(seconds=2)), min_size=1))
def test_short_runs_cost_at_least_what_one_run_of_their_length_does(
    start: datetime, runs: list[timedelta]
) -> None:
    each_ms = [
        close_usage(usage(start), ended_at=start + length, cause=CAUSE).result.milliseconds or 0
        for length in runs
    ]
    assert sum(each_ms) >= max(1000 * len(runs), sum(runs, timedelta()) // timedelta(seconds=1))


@pytest.mark.parametrize(("end", "seconds"), [(0.5, 0), (1.4, 1), (60.9, 60)])
def test_a_usage_that_an_older_version_closed_keeps_its_whole_seconds(
    end: float, seconds: int
) -> None:
    old = replace(usage(), end_time=START + timedelta(seconds=end))
    consumed = old.consumed_until(START + timedelta(days=1))
    assert (consumed.seconds, consumed.milliseconds) == (seconds, 1000 * seconds)
    assert consumed.amount == cost_of(1000 * seconds, old.rate)


@pytest.mark.parametrize(
    ("now", "until"),
    [
        (datetime(2026, 3, 2, 23, 59, 59, 999_999, UTC), datetime(2026, 3, 2, tzinfo=UTC)),
        (datetime(2026, 3, 3, tzinfo=UTC), datetime(2026, 3, 3, tzinfo=UTC)),
        (
            datetime(2026, 3, 3, 1, tzinfo=timezone(timedelta(hours=2))),
            datetime(2026, 3, 2, tzinfo=UTC),
        ),
    ],
)
def test_an_open_one_is_billed_up_to_the_last_utc_midnight(now: datetime, until: datetime) -> None:
    assert billable_until(usage(), now=now) == until
    end = START + timedelta(seconds=1)
    assert billable_until(usage(end=end), now=now) == end


@pytest.mark.parametrize(
    ("end", "days"),
    [
        (timedelta(0), []),
        (timedelta(milliseconds=1), [(1, 1000)]),
        (timedelta(hours=2), [(1, 7_200_000)]),
        (timedelta(hours=2, microseconds=999), [(1, 7_200_000)]),
        (timedelta(hours=2, milliseconds=1), [(1, 7_200_000), (2, 1)]),
        (timedelta(hours=26), [(1, 7_200_000), (2, 86_400_000)]),
    ],
)
def test_a_day_has_a_share_from_its_first_millisecond(
    end: timedelta, days: list[tuple[int, int]]
) -> None:
    shares = shares_by_day(usage(), until=START + end)
    assert [(each.day.day, each.consumed.milliseconds) for each in shares] == days


@pytest.mark.parametrize("length", [timedelta(0), timedelta(milliseconds=400)])
def test_a_run_at_midnight_counts_for_one_second_in_one_day(length: timedelta) -> None:
    night = midnight(START.date() + timedelta(days=1))
    for start in (night, night - length / 2):
        ended = close_usage(usage(start), ended_at=start + length, cause=CAUSE).result
        shares = list(shares_by_day(ended, until=start + length))
        assert [(each.day, each.consumed.milliseconds) for each in shares] == [(start.date(), 1000)]


CONSUMER = Consumer("sbx-1", "100000000000", "prj-1")
CAUSE = Cause("system", 1_800_000_000_000, "it reached its deadline")


def opened() -> Usage:
    return open_usage(
        CONSUMER,
        usage_id="usg-1",
        cpu=2.0,
        memory_gb=0.5,
        prices=PRICES,
        started_at=START,
        deadline_at=START + timedelta(days=7),
        cause=CAUSE,
    ).result


def test_a_usage_opens_with_its_rate_and_no_cost() -> None:
    usage = opened()
    assert (usage.end_time, usage.hourly_rate) == (None, Decimal("0.105000"))
    assert str(usage.cost) == "0.000000"
    assert (usage.sequence, usage.is_billed, usage.project_id) == (1, False, "prj-1")


def test_nothing_is_counted_beyond_the_deadline() -> None:
    usage = opened()
    deadline = START + timedelta(days=7)
    late = deadline + timedelta(days=30)
    assert usage.milliseconds_until(late) == usage.milliseconds_until(deadline) == 7 * 86_400_000
    assert usage.cost_until(late) == usage.cost_until(deadline) == Decimal("17.640000")
    closed = close_usage(usage, ended_at=late, cause=CAUSE).result
    assert (closed.end_time, closed.cost) == (deadline, Decimal("17.640000"))
    for each in (usage, closed):
        shares = list(shares_by_day(each, until=late))
        assert sum(share.consumed.seconds for share in shares) == 7 * 86_400
        assert sum(share.consumed.amount for share in shares) == closed.cost


@pytest.mark.parametrize(
    ("deadline", "end", "hours"),
    [
        (None, None, 3),
        (2, None, 2),
        (3, None, 3),
        (4, None, 3),
        (None, 1, 1),
        (2, 1, 1),
        (1, 2, 1),
    ],
)
def test_it_counts_until_the_first_of_the_moment_the_deadline_and_the_end(
    deadline: int | None, end: int | None, hours: int
) -> None:
    def after(hours: int | None) -> datetime | None:
        return None if hours is None else START + timedelta(hours=hours)

    limited = replace(usage(end=after(end)), deadline_at=after(deadline))
    assert limited.counted_until(START + timedelta(hours=3)) == after(hours)


WEEK = timedelta(days=7)


@pytest.mark.parametrize(
    ("deadline", "capped"),
    [
        (timedelta(hours=1), timedelta(hours=1)),
        (-timedelta(hours=1), timedelta(0)),
        (WEEK - timedelta(microseconds=1), WEEK - timedelta(microseconds=1)),
        (WEEK, None),
        (2 * WEEK, None),
    ],
)
def test_a_cap_is_an_earlier_deadline(deadline: timedelta, capped: timedelta | None) -> None:
    transition = cap_usage(opened(), deadline_at=START + deadline, cause=CAUSE)
    if capped is None:
        assert transition is None
        return
    assert transition is not None
    assert transition.result.counted_until(START + 9 * WEEK) == START + capped
    [event] = transition.events
    assert (event.kind, list(event.data)) == ("usage.capped", ["deadline_at"])


def test_a_closed_usage_is_not_capped_and_one_without_a_deadline_is() -> None:
    closed = close_usage(opened(), ended_at=START + timedelta(hours=2), cause=CAUSE).result
    earlier = START + timedelta(hours=1)
    assert cap_usage(closed, deadline_at=earlier, cause=CAUSE) is None
    unlimited = replace(opened(), deadline_at=None)
    assert cap_usage(unlimited, deadline_at=earlier, cause=CAUSE) is not None


@pytest.mark.parametrize(("hours", "seconds"), [(1, 3600), (0, 1), (-1, 1)])
def test_a_run_that_is_over_is_recorded_as_a_closed_usage(hours: int, seconds: int) -> None:
    transition = record_run(
        CONSUMER,
        usage_id="usg-1",
        cpu=2.0,
        memory_gb=0.5,
        prices=PRICES,
        started_at=START,
        ended_at=START + timedelta(hours=hours),
        cause=CAUSE,
    )
    run = transition.result
    assert (transition.before, transition.events[0].kind) == (None, "usage.recorded")
    assert run.end_time == run.deadline_at == START + timedelta(hours=max(0, hours))
    assert (run.running_seconds, run.cost) == (seconds, cost_of(1000 * seconds, run.rate))
    assert (run.sequence, run.end_reason) == (1, "it reached its deadline")


@pytest.mark.parametrize(
    ("end", "milliseconds"),
    [
        (START + timedelta(hours=1), 3_600_000),
        (START, 1000),
        (START - timedelta(hours=1), 1000),
        (START + timedelta(seconds=1, milliseconds=999), 1999),
    ],
)
def test_a_usage_closes_with_its_time_hours_and_cost(end: datetime, milliseconds: int) -> None:
    transition = close_usage(opened(), ended_at=end, cause=CAUSE)
    usage = transition.result
    assert usage.end_time == max(end, START)
    assert (usage.milliseconds, usage.running_seconds) == (milliseconds, milliseconds // 1000)
    assert usage.cost == cost_of(milliseconds, usage.hourly_rate)
    assert usage.cpu_hours == round(2 * milliseconds / 3_600_000, 6)
    assert usage.memory_hours == round(milliseconds / 7_200_000, 6)
    assert (usage.end_reason, usage.sequence) == ("it reached its deadline", 2)
    assert transition.events[0].kind == "usage.closed"


def test_a_long_reason_is_cut_to_its_column() -> None:
    cause = CAUSE.because("x" * 500)
    assert close_usage(opened(), ended_at=START, cause=cause).result.end_reason == "x" * 255


def kept(size_bytes: int, until: datetime) -> Usage | None:
    return storage_usage(
        CONSUMER, usage_id="usg-1", size_bytes=size_bytes, prices=PRICES, since=START, until=until
    )


def test_storage_is_recorded_as_closed_usage() -> None:
    until = START + timedelta(hours=2)
    usage = kept(5 * 2**30, until)
    assert usage is not None
    assert (usage.service_type, usage.end_time) == (ServiceType.STORAGE, until)
    assert (usage.storage_gb, usage.storage_hours, usage.running_seconds) == (5, 10, 0)
    assert usage.cost == Decimal("0.001000")
    assert record_storage(usage, cause=CAUSE).events[0].kind == "usage.recorded"


@pytest.mark.parametrize("until", [START, START - timedelta(seconds=1)])
def test_no_time_at_all_is_no_storage(until: datetime) -> None:
    assert kept(1, until) is None


def test_a_usage_is_marked_as_billed() -> None:
    transition = mark_billed(opened(), cause=CAUSE)
    assert transition.events[0].data == {"is_billed": True}
    assert transition.result.is_billed
