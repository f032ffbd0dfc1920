"""What a month came to so far, billed or not."""

from collections.abc import AsyncIterator
from datetime import timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

from sandyard.kit.clock import utc_time
from sandyard.kit.ids import resource_id
from sandyard.platform.billing.model import sum_usages
from sandyard.platform.schema.tables import sandbox_usage
from sandyard.platform.usage.sql import USAGES
from tests.contract.platform.access.test_isolation import key_of
from tests.contract.platform.lives import DAY, RUNTIME, STORAGE, Life, bill, life, price, rows_of
from tests.support.clocks import ManualClock
from tests.support.platform.event_replay import assert_history
from tests.support.platform.in_process import (
    Caller,
    MigratedEngines,
    PlatformApi,
    code_of,
    platform_api,
)
from tests.support.platform.sandboxes import add_template
from tests.support.storage.engines import SQL_ENGINES

PRICES = {
    "price_vcpu_hour": Decimal("0.049999"),
    "price_memory_gb_hour": Decimal("0.010007"),
    "price_storage_gb_hour": Decimal("0.000131"),
}
"""Those of the lives, so that what is kept costs the same wherever it is counted."""


@pytest.fixture(params=SQL_ENGINES)
async def api(
    request: pytest.FixtureRequest, migrated: MigratedEngines, tmp_path: Path, clock: ManualClock
) -> AsyncIterator[PlatformApi]:
    url = await migrated.copy(request.param, tmp_path)
    async with platform_api(url, tmp_path, clock, sandboxes=PRICES) as api:
        yield api


async def month(api: PlatformApi, caller: Caller, by: str = "service_type") -> Any:
    return await api.get("/billing/month-to-date", caller, by=by)


async def running(api: PlatformApi, cpu: float = 1.0) -> tuple[Caller, Life]:
    ann = await key_of(api, await api.account())
    box = await life(api, ann.account_id, await add_template(api))
    await box.start(utc_time(api.clock.now()), cpu)
    return ann, box


async def test_what_runs_counts_up_to_now(api: PlatformApi) -> None:
    ann, _ = await running(api, 1.5)
    nothing = await month(api, await api.account())
    assert (nothing["total"], nothing["sums"]) == ("0.000000", [])
    api.clock.advance(5399)
    found = await month(api, ann)
    rate = Decimal("0.085006")  # rounded half to even from 0.0850055
    assert found["total"] == found["unbilled"] == str(price(5399, rate))
    assert found["billed"] == "0.000000"
    assert found["since"] == "2027-01-01"
    [line] = found["sums"]
    assert (line["key"], line["usage_seconds"]) == (RUNTIME, 5399)
    assert line["cpu_hours"] == found["cpu_hours"] == "2.249583"
    assert line["memory_hours"] == found["memory_hours"] == "1.499722"
    [usage] = (await api.get("/usage", ann))["usage"]
    assert [usage[each] for each in ("cost", "cpu_hours", "memory_hours")] == [
        line[each] for each in ("amount", "cpu_hours", "memory_hours")
    ]


@pytest.mark.parametrize("by", ["day", "project", "sandbox", "service_type"])
async def test_it_is_what_the_bills_will_tell(api: PlatformApi, by: str) -> None:
    """Half of it billed or not: when all is on bills, they say the same."""
    ann, box = await running(api)
    api.clock.advance(DAY + 3601)
    await bill(api, api.clock)
    await box.end(utc_time(api.clock.now()), 10 * 2**30)
    api.clock.advance(10 * 3600 + 17)
    before = await month(api, ann, by)
    assert 0 < Decimal(before["billed"]) < Decimal(before["total"])
    assert Decimal(before["billed"]) + Decimal(before["unbilled"]) == Decimal(before["total"])
    if by == "service_type":
        kept = 10 * 3600 + 17
        amounts = {each["key"]: Decimal(each["amount"]) for each in before["sums"]}
        assert amounts[STORAGE] == price(kept, Decimal("0.001310"))
    await box.recycle(utc_time(api.clock.now()))
    await bill(api, api.clock)
    after = await month(api, ann, by)
    assert after["sums"] == before["sums"]
    assert (after["billed"], after["unbilled"]) == (after["total"], "0.000000")
    summary = await api.get("/billing/summary", ann, by=by)
    assert (summary["sums"], summary["total"]) == (after["sums"], after["total"])


async def test_charges_and_credits_count_in_the_month_and_are_made_once(api: PlatformApi) -> None:
    admin, (ann, box) = await api.admin(), await running(api)
    api.clock.advance(3600)
    support = {"account_id": ann.account_id, "amount": "12.50", "description": "Support"}

    async def charge(caller: Caller = admin, key: str | None = None, **changes: str) -> Any:
        headers = {"Idempotency-Key": key} if key else {}
        body = support | changes
        return await api.call("POST", "/admin/billing/charges", caller, json=body, headers=headers)

    first, again = [await charge(key="october") for _ in range(2)]
    assert (first.status_code, again.status_code) == (201, 200)
    assert first.json() == again.json()
    assert [first.json()[each] for each in ("service_type", "usage_id")] == ["charge", None]
    assert code_of(await charge(key="october", amount="13")) == (409, "CHARGE_EXISTS")
    assert (await charge(service_type="credit", amount="2.5")).json()["amount"] == "-2.500000"
    assert code_of(await charge(account_id="1" * 12)) == (404, "CHARGED_ACCOUNT_UNKNOWN")
    assert code_of(await charge(ann)) == (403, "ADMINS_ONLY")
    found = await month(api, ann)
    ran = price(3600, Decimal("0.060006"))
    assert {each["key"]: each["amount"] for each in found["sums"]} == {
        "charge": "12.500000",
        "credit": "-2.500000",
        RUNTIME: str(ran),
    }
    assert (found["total"], found["billed"]) == (str(ran + 10), "10.000000")
    by_sandbox = (await month(api, ann, "sandbox"))["sums"]
    assert {each["key"]: each["amount"] for each in by_sandbox} == {
        "": "10.000000",
        box.sandbox_id: str(ran),
    }
    alone = await api.get("/billing/month-to-date", ann, sandbox_id=box.sandbox_id)
    assert alone["total"] == str(ran)
    await bill(api, api.clock)
    assert len((await api.get("/billing", ann, service_type="charge"))["bills"]) == 1
    await assert_history(api.part.database)


async def test_a_charge_reaches_the_spend_threshold_unless_it_is_credited(
    api: PlatformApi,
) -> None:
    admin, accounts = await api.admin(), [await api.account() for _ in range(2)]
    for each, credited in zip(accounts, ("0", "0.01"), strict=True):
        await api.call("PATCH", "/me", each, json={"spend_threshold": "10"})
        body = {"account_id": each.account_id, "description": "Support"}
        charges = "/admin/billing/charges"
        await api.post(charges, admin, body | {"amount": 10})
        await api.post(charges, admin, body | {"amount": credited, "service_type": "credit"})
    await bill(api, api.clock)
    told = [(await api.get("/notifications", each))["notifications"] for each in accounts]
    assert [len([one for one in each if "threshold" in one["title"]]) for each in told] == [1, 0]


async def test_a_month_has_what_went_on_in_it(api: PlatformApi) -> None:
    ann, box = await running(api)
    started_at = utc_time(api.clock.now())
    february = started_at.replace(month=2, day=1, hour=0, minute=0, second=0)
    api.clock.advance((february - started_at).total_seconds() - 3600)
    await box.end(utc_time(api.clock.now()))
    await box.start(utc_time(api.clock.now()))
    api.clock.advance(3600)
    assert (await month(api, ann))["total"] == "0.000000", "it is the first of the month"
    api.clock.advance(7200)
    found = await month(api, ann, "day")
    assert [(each["key"], each["usage_seconds"]) for each in found["sums"]] == [
        ("2027-02-01", 7200)
    ]
    await box.end(utc_time(api.clock.now()), delay=2 * 3600 + 60)
    assert (await month(api, ann))["total"] == "0.000000", "it ended in January"


async def test_what_is_to_be_corrected_is_less_than_nothing(api: PlatformApi) -> None:
    ann, box = await running(api)
    api.clock.advance(DAY)
    await bill(api, api.clock)
    await box.end(utc_time(api.clock.now()), delay=DAY - 60)
    found = await month(api, ann)
    assert Decimal(found["unbilled"]) == Decimal(found["total"]) - Decimal(found["billed"]) < 0
    assert found["total"] == str(price(60, Decimal("0.060006")))
    await bill(api, api.clock)
    assert (await month(api, ann))["billed"] == found["total"]


async def test_more_usages_than_one_batch_are_all_counted(api: PlatformApi) -> None:
    ann, box = await running(api)
    api.clock.advance(10)
    await box.end(utc_time(api.clock.now()))
    [row] = await rows_of(api, sandbox_usage, [box.sandbox_id])
    same = {name: value for name, value in row._mapping.items() if name != "id"}
    copies = [same | {"usage_id": resource_id("usg")} for _ in range(1000)]
    await api.part.database.write(lambda c: c.execute(sandbox_usage.insert(), copies))
    [line] = (await month(api, ann))["sums"]
    assert line["usage_seconds"] == 1001 * 10


async def test_a_run_that_an_older_version_closed_keeps_its_whole_seconds(
    api: PlatformApi,
) -> None:
    ann, box = await running(api)
    api.clock.advance(10.9 - api.clock.now() % 1)
    await box.end(utc_time(api.clock.now()))
    old = sandbox_usage.update().values(milliseconds=None, cost=price(10, Decimal("0.060006")))
    await api.part.database.write(lambda connection: connection.execute(old))
    [usage] = (await api.get("/usage", ann))["usage"]
    [line] = (await month(api, ann))["sums"]
    assert usage["milliseconds"] == line["usage_milliseconds"] == 10_000
    assert usage["cost"] == line["amount"] == str(price(10, Decimal("0.060006")))
    await bill(api, api.clock)
    assert (await month(api, ann))["billed"] == usage["cost"]


@pytest.mark.parametrize("by", ["day", "project", "sandbox", "service_type"])
async def test_runs_of_a_day_over_midnight_and_of_other_sandboxes_add_up(
    api: PlatformApi, by: str
) -> None:
    """Seconds begin and end anywhere in them, as the engine's arithmetic must not round."""
    ann, box = await running(api)
    other = await life(api, ann.account_id, await add_template(api))
    at = utc_time(api.clock.now()).replace(hour=20, minute=0, second=0, microsecond=999_700)
    await box.end(at)
    usages = 0
    for number in range(6):
        each = box if number % 2 else other
        began = at + timedelta(hours=number, microseconds=number * 99_930)
        await each.start(began, cpu=1 + number / 4)
        await each.end(began + timedelta(minutes=17 * number, seconds=3))
        usages += 1
    api.clock.advance(2 * DAY)
    rows = await rows_of(api, sandbox_usage, [box.sandbox_id, other.sandbox_id])
    found = [USAGES.entity_of(row) for row in rows]
    assert len(found) == usages + 1
    until = utc_time(api.clock.now())
    since = until.date().replace(day=1)
    expected = sum_usages(found, since=since, until=until, by=by)  # type: ignore[arg-type]
    told = {each["key"]: each for each in (await month(api, ann, by))["sums"]}
    assert {key: int(each["usage_seconds"]) for key, each in told.items()} == {
        key: each.seconds for key, each in expected.items()
    }
    assert {key: (each["amount"], each["cpu_hours"]) for key, each in told.items()} == {
        key: (str(each.amount), str(each.cpu_hours)) for key, each in expected.items()
    }
    alone = await api.get("/billing/month-to-date", ann, sandbox_id=box.sandbox_id)
    mine = sum_usages(
        [each for each in found if each.sandbox_id == box.sandbox_id],
        since=since,
        until=until,
        by="sandbox",
    )
    assert alone["total"] == str(mine[box.sandbox_id].amount)
