"""Usage, quotas and bills by example, with two replicas at once."""

import asyncio
import csv
from collections.abc import Sequence
from datetime import timedelta
from decimal import Decimal

import pytest

from sandyard.kit.clock import utc_time
from sandyard.platform.quotas.model import Resources
from sandyard.platform.sandboxes.errors import QuotaExceededError
from sandyard.platform.sandboxes.model import Status
from sandyard.platform.schema.tables import billing_records, sandbox_usage
from tests.contract.platform.access.test_isolation import key_of
from tests.contract.platform.lives import (
    DAY,
    STORAGE,
    Life,
    bill,
    life,
    price,
    rate_of,
    reckon_life,
    reckon_sums,
    rows_of,
)
from tests.support.platform.event_replay import assert_history
from tests.support.platform.in_process import Caller, PlatformApi
from tests.support.platform.sandboxes import add_template


async def test_of_two_ends_at_once_one_is_recorded(replicas: Sequence[PlatformApi]) -> None:
    api, other = replicas
    ann, template_id = await api.account(), await add_template(api)
    for _ in range(5):
        box = await life(api, ann.account_id, template_id)
        now = utc_time(api.clock.now())
        assert await rows_of(api, sandbox_usage, [box.sandbox_id]) == []
        await box.start(now)
        [usage] = await rows_of(api, sandbox_usage, [box.sandbox_id])
        assert (usage.start_time, usage.end_time) == (now, None)
        same = Life(other, box.sandbox_id, box.attempt)
        outcomes = await asyncio.gather(
            *(each.record_end(now + timedelta(seconds=10), 5) for each in (box, same) * 2)
        )
        assert sorted(outcomes) == [False, False, False, True]
        [usage] = await rows_of(api, sandbox_usage, [box.sandbox_id])
        assert usage.cost == price(10, rate_of(usage))
        assert (await box.look()).status is Status.STOPPED
    told = (await api.get("/notifications", ann))["notifications"]
    assert len([each for each in told if each["title"].endswith("has ended")]) == 5


async def test_starts_at_once_do_not_exceed_the_quota(replicas: Sequence[PlatformApi]) -> None:
    ann, bob = [await replicas[0].account() for _ in range(2)]
    template_id = await add_template(replicas[0])
    for quota in (Resources(3, 99, 99, 9), Resources(99, 3, 99, 9), Resources(99, 99, 3.5, 9)):
        made = [await life(replicas[n % 2], ann.account_id, template_id) for n in range(10)]
        now = utc_time(replicas[0].clock.now())
        outcomes = await asyncio.gather(
            *(each.begin(quota, now) for each in made), return_exceptions=True
        )
        assert outcomes.count(True) == 3
        assert len([each for each in outcomes if isinstance(each, QuotaExceededError)]) == 7
        theirs = await life(replicas[1], bob.account_id, template_id)
        assert await theirs.begin(quota, now)
        for each in (*made, theirs):
            each.attempt = 1
            await each.record_end(now)


async def test_an_account_is_told_of_its_spending_once_a_month(
    replicas: Sequence[PlatformApi],
) -> None:
    api, other = replicas
    ann, template_id = await key_of(api, await api.account()), await add_template(api)
    await api.call("PATCH", "/me", ann, json={"spend_threshold": "0.120012"})
    box = await life(api, ann.account_id, template_id)
    box.may_run_for = timedelta(days=60)
    await box.start(utc_time(api.clock.now()))  # at 0.060006 an hour
    hours_left = 14  # of the month, after the first line
    for seconds, told in (
        *((7199, 0), (1, 1), (DAY, 1), (15 * DAY, 1)),
        *((hours_left * 3600, 1), (7199, 1), (1, 2), (DAY, 2)),
    ):
        api.clock.advance(seconds)
        await asyncio.gather(*(bill(each, api.clock) for each in (api, other)))
        assert await spend_notices(api, ann) == told, seconds
    await box.end(utc_time(api.clock.now()))
    api.clock.advance(40 * DAY)
    await bill(api, api.clock)
    assert await spend_notices(api, ann) == 2, "nothing was spent since"


async def spend_notices(api: PlatformApi, caller: Caller) -> int:
    told = (await api.get("/notifications", caller))["notifications"]
    return len([each for each in told if "threshold" in each["title"]])


async def test_kept_files_are_billed_as_storage_by_the_day(api: PlatformApi) -> None:
    ann = await key_of(api, await api.account())
    box = await life(api, ann.account_id, await add_template(api))
    await box.start(utc_time(api.clock.now()))
    api.clock.advance(14 * 3600)  # 22:00 of the first day
    await box.end(utc_time(api.clock.now()), 10 * 2**30)
    rate = Decimal("0.001310")
    bills: list[tuple[str, int, Decimal]] = []
    for hours, days in ((1, []), (2, ["15"]), (47, ["16", "17"]), (24, ["18"])):
        api.clock.advance(hours * 3600)
        await bill(api, api.clock)
        for day in days:
            seconds = 7200 if day == "15" else DAY
            bills.insert(0, (f"2027-01-{day}", seconds, price(seconds, rate)))
        assert await storage_bills(api, ann) == bills
    await box.recycle(utc_time(api.clock.now()))  # at 0:00 of the fifth day
    api.clock.advance(5 * DAY)
    await bill(api, api.clock)
    assert await storage_bills(api, ann) == bills
    stored = await rows_of(api, sandbox_usage, [box.sandbox_id])
    assert sum(each.storage_hours for each in stored) == pytest.approx(10 * 74)
    assert {each.running_seconds for each in stored if each.service_type == STORAGE} == {0}
    sums = (await api.get("/billing/summary", ann, by="service_type"))["sums"]
    shown = {each["key"]: Decimal(each["amount"]) for each in sums}
    assert shown[STORAGE] == sum(amount for _, _, amount in bills) == price(74 * 3600, rate)


async def test_runs_within_a_second_cost_one_second_each_wherever_they_are_shown(
    api: PlatformApi,
) -> None:
    """They were free, as no second of the clock began in them."""
    ann = await key_of(api, await api.account())
    box = await life(api, ann.account_id, await add_template(api))
    for _ in range(10):
        api.clock.advance(1.1 - api.clock.now() % 1)
        await box.start(utc_time(api.clock.now()))
        api.clock.advance(0.76)
        await box.end(utc_time(api.clock.now()))
    await bill(api, api.clock)
    cost = 10 * price(1, Decimal("0.060006"))
    usages = (await api.get("/usage", ann))["usage"]
    bills = (await api.get("/billing", ann))["bills"]
    assert [each["milliseconds"] for each in usages] == 10 * [1000]
    assert [each["usage_milliseconds"] for each in bills] == 10 * [1000]
    assert sum(Decimal(each["cost"]) for each in usages) == cost
    assert sum(Decimal(each["amount"]) for each in bills) == cost
    for path in ("summary", "month-to-date"):
        found = await api.get(f"/billing/{path}", ann, by="service_type")
        [line] = found["sums"]
        assert (Decimal(found["total"]), line["usage_milliseconds"]) == (cost, 10_000)
        assert line["usage_seconds"] == 10


async def storage_bills(api: PlatformApi, caller: Caller) -> list[tuple[str, int, Decimal]]:
    found = (await api.get("/billing", caller, service_type=STORAGE))["bills"]
    return [
        (each["billing_date"], each["usage_seconds"], Decimal(each["amount"])) for each in found
    ]


@pytest.mark.parametrize("size", [None, 10**12])
async def test_an_end_that_is_recorded_after_midnight_counts_when_it_was(
    api: PlatformApi, size: int | None
) -> None:
    """As when the machine that it ran on was away over midnight, and billing ran elsewhere."""
    ann = await api.account()
    box = await life(api, ann.account_id, await add_template(api))
    for delay in (0, 20 * 3600):
        await box.start(utc_time(api.clock.now()))
        api.clock.advance(DAY)
        await bill(api, api.clock)
        await box.end(utc_time(api.clock.now()), size, delay)
    await box.recycle(utc_time(api.clock.now()))
    await bill(api, api.clock)
    usages = await rows_of(api, sandbox_usage, [box.sandbox_id])
    reckon_life(box, usages)
    reckon_sums(usages, await rows_of(api, billing_records, [box.sandbox_id]))


async def test_bills_are_corrected_by_new_ones_alone(replicas: Sequence[PlatformApi]) -> None:
    api, other = replicas
    ann = await key_of(api, await api.account())
    box = await life(api, ann.account_id, await add_template(api))
    started_at = utc_time(api.clock.now())
    await box.start(started_at, 1.5)
    api.clock.advance(2 * DAY)
    await bill(api, api.clock)
    early = (await api.get("/billing", ann))["bills"]
    assert len(early) == 2
    await box.end(utc_time(api.clock.now()), delay=2 * DAY - 60)
    await asyncio.gather(*(bill(each, api.clock) for each in (api, other)))
    late = (await api.get("/billing", ann))["bills"]
    assert [each for each in late if each["corrects"] is None] == early, "they stay as they were"
    corrections = [each for each in late if each["corrects"]]
    assert [each["corrects"] for each in corrections] == [each["billing_id"] for each in early]
    [usage] = (await api.get("/usage", ann))["usage"]
    for total, number in {"amount": "cost", "cpu_hours": "cpu_hours"}.items():
        assert sum(Decimal(each[total]) for each in late) == Decimal(usage[number]) > 0
    assert sum(each["usage_seconds"] for each in late) == usage["seconds"] == 60
    summary = await api.get("/billing/summary", ann)
    assert summary["total"] == usage["cost"]
    assert [each["cpu_hours"] for each in summary["sums"]] == [usage["cpu_hours"], "0.000000"]
    text = (await api.call("GET", "/billing/export", ann)).text
    rows = list(csv.DictReader(text.splitlines()))
    columns = ("billing_id", "usage_seconds", "cpu_hours", "memory_hours", "storage_hours")
    exported = {tuple(each[name] for name in (*columns, "corrects")) for each in rows}
    assert exported == {
        (*(str(each[name]) for name in columns), each["corrects"] or "") for each in late
    }
    await assert_history(api.part.database)
