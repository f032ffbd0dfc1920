"""Money: days add up to what a usage cost, to the last millionth."""

from datetime import UTC, datetime, timedelta
from decimal import ROUND_HALF_EVEN, Decimal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sandyard.platform.usage.model import (
    PriceList,
    ServiceType,
    Usage,
    billable_until,
    cost_of,
    midnight,
    shares_by_day,
)

START = datetime(2026, 3, 1, 22, 0, 0, tzinfo=UTC)
PRICES = PriceList(vcpu=Decimal("0.05"), memory_gb=Decimal("0.01"), storage_gb=Decimal("0.0001"))

moments = st.integers(1_767_225_600, 1_798_675_200_000).map(
    lambda at: datetime.fromtimestamp(at % 31_449_600 + 1_767_225_600 + (at % 997) / 997, UTC)
)
"""In 2026, with parts of a second."""
lengths = st.timedeltas(min_value=timedelta(0), max_value=timedelta(days=40))
rates = st.decimals(min_value=0, max_value=1000, places=6)


def usage(
    start: datetime = START, end: datetime | None = None, rate: Decimal = Decimal("0.06")
) -> Usage:
    return Usage(
        usage_id="usg-1",
        sandbox_id="sbx-1",
        account_id="1",
        project_id=None,
        service_type=ServiceType.RUNTIME,
        start_time=start,
        end_time=end,
        hourly_rate=rate,
        cpu=1,
        memory_gb=1,
        storage_gb=0,
    )


@given(moments, lengths, rates)
def test_the_days_add_up_to_the_seconds_at_the_rate(
    start: datetime, length: timedelta, rate: Decimal
) -> None:
    ended = usage(start, start + length, rate)
    shares = list(shares_by_day(ended, until=billable_until(ended, now=start + length)))
    seconds = int((start + length).timestamp()) - int(start.timestamp())
    assert sum(share.seconds for share in shares) == seconds
    assert sum((share.amount for share in shares), Decimal(0)) == cost_of(seconds, rate)
    assert cost_of(seconds, rate) == (rate * seconds / 3600).quantize(
        Decimal("0.000001"), ROUND_HALF_EVEN
    )
    assert all(0 < share.seconds <= 86_400 and share.amount >= 0 for share in shares)
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
        (s.day.day, s.seconds, s.amount)
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
    assert cost_of(seconds, Decimal(rate)) == Decimal(cost)


def test_the_price_list_makes_rates() -> None:
    assert PRICES.of_running(cpu=2, memory_gb=0.5) == Decimal("0.105000")
    assert PRICES.of_keeping(size_bytes=5 * 10**9) == Decimal("0.000500")


def test_a_clock_that_went_back_costs_nothing() -> None:
    assert usage(end=START - timedelta(hours=1)).cost_until(START) == 0
