"""Money: whatever runs, ends, is stored and billed when, each millisecond is paid exactly once."""

import asyncio
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sandyard.kit.clock import utc_time
from sandyard.platform.schema.tables import billing_records, sandbox_usage
from tests.contract.platform.lives import (
    DAY,
    START,
    bill,
    life,
    reckon_days,
    reckon_life,
    reckon_sums,
    rows_of,
)
from tests.support.clocks import ManualClock
from tests.support.platform.event_replay import assert_history
from tests.support.platform.in_process import MigratedEngines, PlatformApi, platform_api
from tests.support.platform.sandboxes import add_template
from tests.support.storage.engines import SQL_ENGINES

boxes = st.sampled_from([0, 0, 0, 1, 1, 2])
sizes = st.sampled_from([77 * 2**30, 3 * 2**30, 999_999_999, 1, None])
delays = st.sampled_from([0, 0.25, 7, 3600, 2 * DAY])
steps = st.one_of(
    st.tuples(st.just("start"), boxes, st.sampled_from([1.0, 1.5, 8.0])),
    st.tuples(st.just("end"), boxes, sizes, delays),
    st.tuples(st.just("recycle"), st.just(2)),
    st.tuples(st.just("wait"), st.sampled_from([0.4, 1, 59.7, 3601, 50_000, 3 * DAY])),
    st.tuples(st.just("midnight"), st.sampled_from([1, 0.001, 0, -0.5])),
    st.tuples(st.just("bill")),
    st.tuples(st.just("midnight"), st.sampled_from([1, 0])).map(lambda night: (*night, "bill")),
)
"""An end may be recorded late; midnight is waited for, or nearly, or a little longer, and it may
be billed right then. Some sandboxes live more than others, so that more happens to them."""


async def live(api: PlatformApi, taken: Sequence[tuple[Any, ...]], template_id: str) -> None:
    """Take the steps, end what is left, make the last bills, and reckon."""
    clock = ManualClock(START)
    accounts = [(await api.account()).account_id for _ in range(2)]
    lives = [await life(api, accounts[number % 2], template_id) for number in range(3)]
    for action, *values in taken:
        now = utc_time(clock.now())
        if action == "wait":
            clock.advance(*values)
        elif action == "midnight":
            clock.advance(DAY - clock.now() % DAY + values[0])
        if "bill" in (action, *values):
            await bill(api, clock)
        elif action in ("start", "end", "recycle"):
            await getattr(lives[values[0]], action)(now, *values[1:])
    ids = [each.sandbox_id for each in lives]
    usages = await rows_of(api, sandbox_usage, ids)
    open_ones = sorted(usage.sandbox_id for usage in usages if usage.end_time is None)
    assert open_ones == sorted(each.sandbox_id for each in lives if each.running)
    for each in lives:
        await each.end(utc_time(clock.now()))
        await each.recycle(utc_time(clock.now()))
    await bill(api, clock)
    usages, bills = [await rows_of(api, each, ids) for each in (sandbox_usage, billing_records)]
    again = await bill(api, clock)
    assert (again.bills, again.usages, again.storage_counted) == (0, 0, 0)
    assert await rows_of(api, billing_records, ids) == bills
    reckon_sums(usages, bills)
    reckon_days(usages, bills)
    for each in lives:
        reckon_life(each, [usage for usage in usages if usage.sandbox_id == each.sandbox_id])
    await assert_history(api.part.database)


@pytest.mark.timeout(600)
@pytest.mark.parametrize("examples", [8, pytest.param(30, marks=pytest.mark.torture)])
@pytest.mark.parametrize("engine", SQL_ENGINES)
def test_bills_are_usage_is_milliseconds_by_the_rate(
    engine: str, examples: int, migrated: MigratedEngines, tmp_path: Path
) -> None:
    with asyncio.Runner() as runner:
        url = runner.run(migrated.copy(engine, tmp_path))
        context = platform_api(url, tmp_path, ManualClock(START))
        api = runner.run(context.__aenter__())
        template_id = runner.run(add_template(api))

        @settings(max_examples=examples, deadline=None)
        @given(st.lists(steps, min_size=20, max_size=40))
        def check(taken: Sequence[tuple[Any, ...]]) -> None:
            runner.run(live(api, taken, template_id))

        try:
            check()
        finally:
            runner.run(context.__aexit__(None, None, None))
