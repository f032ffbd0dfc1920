"""Sandboxes that have run and were paid for, as far as their rows tell."""

from typing import Any

from sandyard.kit.clock import utc_time
from sandyard.kit.ids import resource_id
from sandyard.platform.schema.tables import billing_records, sandbox_usage
from tests.support.platform.in_process import Caller, PlatformApi
from tests.support.platform.sandboxes import add_sandbox

USAGE = dict.fromkeys(
    [
        *("running_seconds", "cpu_hours", "memory_hours", "storage_hours"),
        *("cpu", "memory_gb", "storage_gb", "cost", "is_billed"),
    ],
    0,
)


async def project_of(api: PlatformApi, caller: Caller, name: str = "other") -> str:
    return str((await api.post("/projects", caller, {"name": name}))["project_id"])


async def paid_sandbox(api: PlatformApi, caller: Caller, rows: int = 1) -> dict[str, Any]:
    """A sandbox that runs, as far as its rows tell, with so many runs before and their bills."""
    sandbox = await add_sandbox(api, caller)
    now = utc_time(api.clock.now())
    row = {"sandbox_id": sandbox["sandbox_id"], "user_account_id": caller.account_id}
    row |= {"service_type": "sandbox_runtime", "hourly_rate": 1, "created_at": now}
    ids = [resource_id("usg") for _ in range(rows + 1)]
    run = row | USAGE | {"start_time": now, "end_time": now}
    usages: list[Any] = [run | {"usage_id": each} for each in ids]
    usages[-1]["end_time"] = None
    bill = row | {"billing_date": now, "usage_seconds": 1, "amount": 1}
    bill |= dict.fromkeys(("cpu_hours", "memory_hours", "storage_hours"), 0)
    bills = [bill | {"usage_id": each, "billing_id": resource_id("bil")} for each in ids]

    def work(connection: Any) -> None:
        connection.execute(sandbox_usage.insert(), usages)
        connection.execute(billing_records.insert(), bills)

    await api.part.database.write(work)
    return sandbox
