"""Machines that are kept warm for a template, and handed out to its sandboxes."""

import time
from datetime import datetime
from decimal import Decimal
from typing import Any

from sandyard.kit.clock import utc_time
from sandyard.runtime.model import Running
from tests.integration.platform.test_sandboxes import open_usages, run_job
from tests.support.platform.in_process import PlatformApi, code_of
from tests.support.platform.sandboxes import act, add_sandbox, add_template, look, page_of


async def waiting(api: PlatformApi) -> list[Running]:
    """What is kept warm, handed out or not."""
    runs = await api.part.wired.runtime.list_runs("warm")
    return [run for run in runs if isinstance(run, Running) and run.run_id.kind == "warm"]


async def test_one_is_handed_out_at_once_and_replaced(api: PlatformApi) -> None:
    caller = await api.account()
    template_id = await add_template(api, warm_machines=2)
    assert (await run_job(api, "warm")).started == 2
    assert (await run_job(api, "warm")).started == 0
    kept = await waiting(api)
    assert len(kept) == 2
    assert await open_usages(api) == 0
    assert (await api.get("/me/quota", caller))["quotas"][0]["in_use"] == 0
    sandbox = await add_sandbox(api, caller, template_id=template_id, memory_spec=1)
    before = utc_time(time.time())
    running = await act(api, caller, sandbox, "start")
    assert len(await waiting(api)) == 1
    assert datetime.fromisoformat(running["started_at"]) >= before  # it is paid for from here on
    assert await open_usages(api) == 1
    assert (await page_of(api, caller, running)).status_code == 200
    assert (await run_job(api, "warm")).started == 1
    assert len(await waiting(api)) == 2
    assert (await run_job(api, "reconcile")).orphans_ended == 0
    stopped = await act(api, caller, sandbox, "stop")
    assert (stopped["status"], Decimal(stopped["cost"]) >= 0) == ("stopped", True)
    assert stopped["snapshot_bytes"] > 0
    again = await act(api, caller, sandbox, "start")  # from its own files
    assert (await page_of(api, caller, again)).status_code == 200
    assert len(await waiting(api)) == 2
    assert (await api.call("DELETE", f"/sandboxes/{sandbox['sandbox_id']}", caller)).is_success
    await _set_warm(api, template_id, 0)
    await run_job(api, "warm")
    assert await api.part.wired.runtime.list_runs("warm") == []
    assert await api.part.wired.runtime.list_snapshots() == []


async def test_one_is_handed_out_with_the_network_that_its_sandbox_has(api: PlatformApi) -> None:
    """As those that are created through E2B's API have another one than their template."""
    caller = await api.account()
    template_id = await add_template(api, warm_machines=1)
    await run_job(api, "warm")
    sandbox = await add_sandbox(
        api, caller, template_id=template_id, memory_spec=1, network="internet"
    )
    await act(api, caller, sandbox, "start")
    assert await waiting(api) == []
    report = await api.get(f"/sandboxes/{sandbox['sandbox_id']}/egress", caller)
    assert report["network"] == "internet"


async def test_one_with_another_size_or_with_variables_starts_as_ever(api: PlatformApi) -> None:
    caller = await api.account()
    template_id = await add_template(api, warm_machines=1)
    await run_job(api, "warm")
    small = await add_sandbox(api, caller, template_id=template_id, memory_spec=0.5)
    assert (await act(api, caller, small, "start"))["status"] == "running"
    with_one = await add_sandbox(api, caller, template_id=template_id, memory_spec=1)
    path = f"/sandboxes/{with_one['sandbox_id']}/env/GREETING"
    assert (await api.call("PUT", path, caller, json={"value": "hello"})).is_success
    assert (await act(api, caller, with_one, "start"))["status"] == "running"
    assert len(await waiting(api)) == 1


async def test_only_admins_keep_machines_warm(api: PlatformApi) -> None:
    caller, admin = await api.account(), await api.admin()
    new = {
        "name": "mine",
        "category": "web",
        "language": "html",
        "repository_url": "builtin:static",
        "warm_machines": 1,
    }
    refused = await api.call("POST", "/templates", caller, json=new)
    assert code_of(refused) == (403, "WARM_MACHINES_REFUSED")
    mine = await api.post("/templates", caller, new | {"warm_machines": 0, "is_public": True})
    path = f"/templates/{mine['template_id']}"
    refused = await api.call("PATCH", path, caller, json={"warm_machines": 3})
    assert code_of(refused) == (403, "WARM_MACHINES_REFUSED")
    allowed = await api.call("PATCH", path, admin, json={"warm_machines": 3})
    assert allowed.json()["warm_machines"] == 3


async def test_they_are_ended_with_the_server_that_kept_them(api: PlatformApi) -> None:
    caller = await api.account()
    template_id = await add_template(api, warm_machines=1)
    await run_job(api, "warm")
    sandbox = await add_sandbox(api, caller, template_id=template_id, memory_spec=1)
    await act(api, caller, sandbox, "start")
    await run_job(api, "warm")
    await api.part.wired.sandboxes.close()
    assert await waiting(api) == []
    assert (await look(api, caller, sandbox))["status"] == "running"
    assert (await run_job(api, "ends")).closed == 0


async def _set_warm(api: PlatformApi, template_id: str, count: int) -> Any:
    admin = await api.admin()
    return await api.call(
        "PATCH", f"/templates/{template_id}", admin, json={"warm_machines": count}
    )
