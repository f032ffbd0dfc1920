"""The machine outlives its program, which is watched, started again and repaired."""

import asyncio
from dataclasses import replace
from signal import SIGKILL

import pytest

from sandyard.runtime.errors import NotRunningError
from sandyard.runtime.guest.program import ProgramState
from sandyard.runtime.model import FileChanges, Program, Repository, RunId, Running
from sandyard.runtime.ports import Runtime
from tests.support.runtime.programs import LIMITS, STATIC, new_run_id
from tests.support.runtime.runtimes import SERVE, RuntimeHost, serving, web


async def until_program(runtime: Runtime, run_id: RunId, status: str) -> ProgramState:
    async with asyncio.timeout(30):
        while True:
            running = await runtime.refresh(run_id)
            assert isinstance(running, Running)
            if running.program is not None and running.program.status == status:
                return running.program
            await asyncio.sleep(0.05)


async def test_a_program_that_fails_is_entered_repaired_and_serves(
    host: RuntimeHost, runtime: Runtime
) -> None:
    program = replace(web("echo no database >&2; sh app.sh"), policy="never")
    running = await runtime.start(new_run_id(), program, LIMITS)
    run_id, failed = running.run_id, running.program
    assert failed is not None
    assert (failed.status, failed.exit_code, failed.restarts_at) == (
        "failed",
        failed.exit_code,
        None,
    )
    assert failed.exit_code in (2, 127)
    assert "no database" in (await runtime.tail_logs(run_id, lines=5))[0]
    await runtime.write_files(run_id, FileChanges(written={"app.sh": SERVE.encode()}))
    repaired = await runtime.start_program(run_id, program)
    assert (repaired.program or failed).status == "running"
    assert (await host.page(repaired)).is_success
    assert (repaired.started_at, repaired.deadline_at) == (running.started_at, running.deadline_at)
    assert (await runtime.tail_logs(run_id, lines=5))[0] == "no database", "the log goes on"
    ended = await runtime.stop(run_id)
    assert (ended.reason, ended.snapshot is None) == ("stopped", False)


async def test_a_killed_program_is_started_again_also_while_no_server_runs(
    host: RuntimeHost, runtime: Runtime
) -> None:
    running = await runtime.start(new_run_id(), serving("echo run >>runs"), LIMITS)
    session = await runtime.session(running.run_id)
    [process] = [each for each in await session.processes.list() if each.is_program]
    await session.processes.signal(process.id, SIGKILL)
    async with asyncio.timeout(30):
        while b"".join([each async for each in session.files.read("runs")]) != b"run\nrun\n":
            await asyncio.sleep(0.05)  # nobody asks the runtime meanwhile
    again = await until_program(host.connect(), running.run_id, "running")
    assert (again.restarts, again.exit_code) == (1, None)
    assert (await host.page(running)).is_success


async def test_each_failure_in_a_row_is_followed_by_a_longer_pause(runtime: Runtime) -> None:
    running = await runtime.start(new_run_id(), web("exit 7"), LIMITS)
    pauses = []
    for restarts in (0, 1):
        failed = await until_program(runtime, running.run_id, "failed")
        while failed.restarts != restarts:
            await asyncio.sleep(0.02)
            failed = await until_program(runtime, running.run_id, "failed")
        assert failed.exit_code == 7
        pauses.append(round((failed.restarts_at or 0) - failed.since_at))
    assert pauses == [1, 2]
    stopped = await runtime.stop_program(running.run_id)
    assert (stopped.program or failed).status == "stopped", "also in a pause"


async def test_a_machine_is_entered_without_its_program_which_starts_later(
    host: RuntimeHost, runtime: Runtime
) -> None:
    rescue = replace(STATIC, is_launched=False)
    running = await runtime.start(new_run_id(), rescue, LIMITS)
    run_id = running.run_id
    assert (running.program or ProgramState("failed", 0)).status == "stopped"
    session = await runtime.session(run_id)
    assert await session.ports.listening() == []
    assert (await session.files.stat("index.html")).kind == "file"
    served = await runtime.start_program(run_id, STATIC)
    assert (await host.page(served)).content == b"<h1>hello</h1>"
    stopped = await runtime.stop_program(run_id)
    assert (stopped.program or ProgramState("failed", 0)).status == "stopped"
    assert await session.ports.listening() == []
    assert await host.connect().stop_program(run_id) == stopped
    await runtime.stop(run_id)
    with pytest.raises(NotRunningError):
        await runtime.start_program(run_id, STATIC)


async def test_what_can_not_be_started_says_why_and_one_that_does_not_listen_is_starting(
    host: RuntimeHost,
) -> None:
    runtime = host.connect(listen_timeout_sec=1)
    running = await runtime.start(new_run_id(), web("exec sleep 1000"), LIMITS)
    assert running.program is not None
    assert running.program.status == "starting"
    nothing = Program(Repository("builtin:static"))
    await runtime.write_files(running.run_id, FileChanges(deleted=frozenset({"Procfile"})))
    failed = (await runtime.start_program(running.run_id, nothing)).program
    assert failed is not None
    assert failed.status == "failed"
    assert "Procfile" in failed.reason
