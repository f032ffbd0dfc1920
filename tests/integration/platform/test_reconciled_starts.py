"""A start whose answer is slow or lost: the reconciler may record the program before it does."""

import asyncio
import json
import signal
import sys
from pathlib import Path
from typing import Any

from sandyard.runtime.errors import RuntimeUnavailableError
from sandyard.runtime.local.records.run_folder import LocalRunFolder
from sandyard.runtime.model import Limits, Program, RunId, Running
from tests.fakes.runtime import FakeRuntime
from tests.support.clocks import RunningClock
from tests.support.platform.in_process import Caller, PlatformApi, code_of, platform_api
from tests.support.platform.sandboxes import act, add_sandbox, look


class SlowToAnswer(FakeRuntime):
    """Starts a program at once, and says so when it may."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self.has_started, self.may_answer = asyncio.Event(), asyncio.Event()

    async def start(self, run_id: RunId, program: Program, limits: Limits) -> Running:
        running = await super().start(run_id, program, limits)
        self.has_started.set()
        await self.may_answer.wait()
        return running


async def test_one_that_the_reconciler_records_first_goes_on(tmp_path: Path) -> None:
    runtime = SlowToAnswer(tmp_path / "machines")
    async with platform_api(None, tmp_path, RunningClock(), runtime=runtime) as api:
        caller = await api.account()
        sandbox = await add_sandbox(api, caller)
        starting = asyncio.create_task(act(api, caller, sandbox, "start"))
        await runtime.has_started.wait()
        [job] = [job for job in api.part.schedule if job.name.split()[0] == "ends"]
        assert (await api.part.runner.run(job)).adopted == 1
        runtime.may_answer.set()
        assert (await starting)["status"] == "running"
        assert (await look(api, caller, sandbox))["status"] == "running"
        usage = (await api.get("/usage", caller, service_type="sandbox_runtime"))["usage"]
        assert len(usage) == 1


class LosesAnswers(FakeRuntime):
    """Starts a program, and can't say so."""

    async def start(self, run_id: RunId, program: Program, limits: Limits) -> Running:
        await super().start(run_id, program, limits)
        raise RuntimeUnavailableError("the answer was lost")


async def test_one_whose_answer_was_lost_is_not_recorded_as_failed(tmp_path: Path) -> None:
    """It may run: recorded as failed, it could be started a second time beside it."""
    runtime = LosesAnswers(tmp_path / "machines")
    async with platform_api(None, tmp_path, RunningClock(), runtime=runtime) as api:
        caller = await api.account()
        sandbox = await add_sandbox(api, caller)
        path = f"/sandboxes/{sandbox['sandbox_id']}"
        assert (await api.call("POST", f"{path}/start", caller)).status_code == 503
        assert (await look(api, caller, sandbox))["status"] == "starting"
        [job] = [job for job in api.part.schedule if job.name.split()[0] == "ends"]
        assert (await api.part.runner.run(job)).adopted == 1
        assert (await look(api, caller, sandbox))["status"] == "running"
        assert len(await runtime.list_runs("sandbox")) == 1


async def killed_during_its_start(
    api: PlatformApi, caller: Caller
) -> tuple[dict[str, Any], LocalRunFolder]:
    """A sandbox whose machine is up, and whose server was killed before it recorded that."""
    sandbox = await add_sandbox(api, caller)
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "tests.support.platform.killed_starts", str(api.data_dir)),
        *(sandbox["sandbox_id"], json.dumps(caller.headers)),
    )
    assert await process.wait() == -signal.SIGKILL
    assert (await look(api, caller, sandbox))["status"] == "starting"
    machine = LocalRunFolder(api.data_dir / f"runtime/held/sandbox/{sandbox['sandbox_id']}/1")
    assert machine.launched_at() is not None
    assert machine.supervisor_pid() is not None
    return sandbox, machine


async def test_one_whose_server_was_killed_fails_at_the_next_look_and_costs_nothing(
    tmp_path: Path,
) -> None:
    tmp_path.chmod(0o755)
    async with platform_api(None, tmp_path, RunningClock()) as api:
        caller = await api.account()
        sandbox, machine = await killed_during_its_start(api, caller)
        repeated = api.call("POST", f"/sandboxes/{sandbox['sandbox_id']}/start", caller)
        waiting = asyncio.create_task(repeated)
        [job] = [job for job in api.part.schedule if job.name.split()[0] == "ends"]
        assert (await api.part.runner.run(job)).closed == 1
        assert code_of(await waiting) == (409, "SUPERVISOR_LOST")
        assert (await look(api, caller, sandbox))["status"] == "stopped"
        assert machine.ended() is not None
        assert (await api.get("/usage", caller, service_type="sandbox_runtime"))["usage"] == []
        assert (await act(api, caller, sandbox, "start"))["status"] == "running"
        await act(api, caller, sandbox, "stop")


async def test_one_whose_server_was_killed_can_be_stopped_by_its_owner(tmp_path: Path) -> None:
    tmp_path.chmod(0o755)
    async with platform_api(None, tmp_path, RunningClock()) as api:
        caller = await api.account()
        sandbox, machine = await killed_during_its_start(api, caller)
        stopped = await act(api, caller, sandbox, "stop")
        assert stopped["status"] == "stopped"
        assert stopped["status_reason"].startswith("STOPPED_WHILE_STARTING")
        assert machine.ended() is not None
