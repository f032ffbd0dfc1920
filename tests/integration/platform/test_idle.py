"""Sandboxes that are stopped when nobody uses them, and those that are not."""

import asyncio
from datetime import timedelta
from typing import Any

import sqlalchemy as sa

from sandyard.kit.clock import utc_time
from sandyard.platform.schema.tables import sandboxes
from tests.integration.platform.test_sandboxes import collect_ends
from tests.support.platform.in_process import Caller, PlatformApi, code_of
from tests.support.platform.sandboxes import act, add_sandbox, look, page_of


async def unused_for(api: PlatformApi, sandbox: dict[str, Any], minutes: float) -> None:
    """Let its last use and its start be so long ago."""
    at = utc_time(api.clock.now()) - timedelta(minutes=minutes)
    this = sandboxes.update().where(sandboxes.c.sandbox_id == sandbox["sandbox_id"])
    changed = this.values(last_used_at=at, started_at=at)
    await api.part.database.write(lambda connection: connection.execute(changed))


async def last_use(api: PlatformApi, sandbox: dict[str, Any]) -> Any:
    this = sandboxes.c.sandbox_id == sandbox["sandbox_id"]
    statement = sa.select(sandboxes.c.last_used_at).where(this)
    return await api.part.database.read(lambda connection: connection.execute(statement).scalar())


async def started(api: PlatformApi, caller: Caller, **changes: Any) -> dict[str, Any]:
    return await act(api, caller, await add_sandbox(api, caller, **changes), "start")


async def test_one_that_nobody_uses_is_stopped_and_its_owner_is_told(api: PlatformApi) -> None:
    caller = await api.account()
    sandbox = await started(api, caller, idle_stop_minutes=5)
    assert sandbox["idle_stop_minutes"] == 5
    await unused_for(api, sandbox, 4.9)
    assert (await collect_ends(api)).idle_stopped == 0
    await unused_for(api, sandbox, 5)
    assert (await collect_ends(api)).idle_stopped == 1
    stopped = await look(api, caller, sandbox)
    reason = "it was idle: no request, command or terminal for 5 minutes"
    assert (stopped["status"], stopped["status_reason"]) == ("stopped", reason)
    assert stopped["snapshot_bytes"] > 0
    [told] = (await api.get("/notifications", caller))["notifications"]
    assert reason in told["message"]
    events = (await api.get(f"/sandboxes/{sandbox['sandbox_id']}/history", caller))["events"]
    assert reason in [event["reason"] for event in events]
    assert (await act(api, caller, sandbox, "start"))["status"] == "running"
    assert (await collect_ends(api)).idle_stopped == 0


async def test_a_request_a_command_or_a_look_at_files_is_a_use(api: PlatformApi) -> None:
    caller = await api.account()
    sandbox = await started(api, caller, idle_stop_minutes=5)
    path = f"/sandboxes/{sandbox['sandbox_id']}"
    before = await last_use(api, sandbox)
    assert (await page_of(api, caller, sandbox)).status_code == 200
    used = await last_use(api, sandbox)
    assert before is None
    assert used is not None
    await unused_for(api, sandbox, 60)
    api.part.wired.activity._noted.clear()
    await api.get(f"{path}/commands", caller)
    assert (await collect_ends(api)).idle_stopped == 0
    await unused_for(api, sandbox, 60)
    body = {"command": ["sleep", "60"], "background": True}
    await api.post(f"{path}/commands", caller, body)
    await unused_for(api, sandbox, 60)
    assert (await collect_ends(api)).idle_stopped == 0  # it still runs
    assert await last_use(api, sandbox) >= used


async def test_a_shell_that_nobody_is_connected_to_is_no_use(api: PlatformApi) -> None:
    caller = await api.account()
    sandbox = await started(api, caller, idle_stop_minutes=5)
    body = {"command": ["sleep", "60"], "background": True, "terminal": {}}
    await api.post(f"/sandboxes/{sandbox['sandbox_id']}/commands", caller, body)
    await unused_for(api, sandbox, 60)
    assert (await collect_ends(api)).idle_stopped == 1


async def test_a_terminal_is_a_use_while_somebody_is_connected(api: PlatformApi) -> None:
    caller = await api.account()
    sandbox = await started(api, caller, idle_stop_minutes=5)
    await unused_for(api, sandbox, 60)
    before, sessions = await last_use(api, sandbox), api.part.wired.sessions
    using = asyncio.create_task(
        sessions.keep_using(sandbox["sandbox_id"], account_id=caller.account_id)
    )
    async with asyncio.timeout(20):
        while await last_use(api, sandbox) == before:
            await asyncio.sleep(0.02)
    using.cancel()
    assert (await collect_ends(api)).idle_stopped == 0


async def test_an_open_connection_is_a_use(api: PlatformApi) -> None:
    caller = await api.account()
    sandbox = await started(api, caller, idle_stop_minutes=5)
    wired = api.part.wired
    connection = await (await wired.targets.ports(sandbox["sandbox_id"])).connect(8080)
    await unused_for(api, sandbox, 60)
    wired.activity._noted.clear()
    await wired.activity.note_open()
    assert (await collect_ends(api)).idle_stopped == 0
    connection.writer.close()
    await connection.writer.wait_closed()
    await unused_for(api, sandbox, 60)
    wired.activity._noted.clear()
    await wired.activity.note_open()
    assert (await collect_ends(api)).idle_stopped == 1


async def test_by_default_an_hour_without_use_stops_it(api: PlatformApi) -> None:
    caller = await api.account()
    sandbox = await started(api, caller)
    assert sandbox["idle_stop_minutes"] == 60
    await unused_for(api, sandbox, 59.9)
    assert (await collect_ends(api)).idle_stopped == 0
    await unused_for(api, sandbox, 60.1)
    assert (await collect_ends(api)).idle_stopped == 1


async def test_without_the_setting_it_runs_to_its_end(api: PlatformApi) -> None:
    caller = await api.account()
    sandbox = await started(api, caller, idle_stop_minutes=None)
    path = f"/sandboxes/{sandbox['sandbox_id']}"
    assert sandbox["idle_stop_minutes"] is None
    await unused_for(api, sandbox, 600)
    assert (await collect_ends(api)).idle_stopped == 0
    assert await last_use(api, sandbox) is not None
    changed = await api.call("PATCH", path, caller, json={"idle_stop_minutes": 1})
    assert changed.json()["idle_stop_minutes"] == 1
    assert (await collect_ends(api)).idle_stopped == 0  # it counts from now on
    wrong = await api.call("PATCH", path, caller, json={"idle_stop_minutes": 0})
    assert code_of(wrong)[0] == 400
    off = await api.call("PATCH", path, caller, json={"idle_stop_minutes": None})
    assert off.json()["idle_stop_minutes"] is None
