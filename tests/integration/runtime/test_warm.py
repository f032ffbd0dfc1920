"""Runs that wait, on this machine: one for each who asks, whoever is killed meanwhile."""

import asyncio
import os
import signal
import time
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path

import pytest

from sandyard.kit.clock import SystemClock
from sandyard.runtime.model import RunId, Running
from sandyard.runtime.programs.warm import WarmPool, WarmRuns
from sandyard.runtime.records.run_folder import WarmFolders
from tests.support.runtime.local_runtime import LocalRuntime
from tests.support.runtime.programs import (
    LIMITS,
    OBEDIENT,
    end_all,
    inside,
    new_run_id,
    until_ended,
)

POOL = WarmPool("tpl", OBEDIENT, LIMITS, 2)


@pytest.fixture
async def runtime(tmp_path: Path) -> AsyncIterator[LocalRuntime]:
    runtime = LocalRuntime(tmp_path / "runtime")
    yield runtime
    await end_all(runtime)
    await warm_runs(tmp_path).keep([])


def warm_runs(folder: Path) -> WarmRuns:
    """As another server on the same data dir has them."""
    return WarmRuns(
        LocalRuntime(folder / "runtime"), WarmFolders(folder / "runtime"), SystemClock()
    )


async def test_of_many_who_ask_at_once_each_gets_one_or_none(
    runtime: LocalRuntime, tmp_path: Path
) -> None:
    servers = [warm_runs(tmp_path) for _ in range(3)]
    assert await servers[0].keep([POOL]) == 2
    taken = await asyncio.gather(
        *(server.take(POOL, to=new_run_id(), limits=LIMITS) for server in servers * 2)
    )
    got = [running for running in taken if running is not None]
    assert len(got) == 2
    for number, running in enumerate(got):
        assert await runtime.refresh(running.run_id) == running
        code = f"open('mine', 'w').write('{number}')"
        assert await inside(runtime, running, code) == ""
    for number, running in enumerate(got):
        assert await inside(runtime, running, "print(open('mine').read())") == str(number)


async def test_it_has_the_deadline_and_the_begin_of_whom_it_was_given_to(
    runtime: LocalRuntime, tmp_path: Path
) -> None:
    warm = warm_runs(tmp_path)
    await warm.keep([replace(POOL, count=1)])
    begun_at = time.time()
    to = new_run_id()
    limits = replace(LIMITS, max_running_sec=1)
    running = await warm.take(POOL, to=to, limits=limits)
    assert running is not None
    assert running.started_at >= begun_at
    ended = await until_ended(runtime, to)
    assert (ended.run_id, ended.reason) == (to, "timeout")
    assert ended.started_at == running.started_at
    assert ended.snapshot is not None
    await runtime.forget(to)
    assert await runtime.refresh(to) is None
    assert await runtime.list_runs("warm") == []


async def test_a_killed_supervisor_is_an_end_of_the_sandbox_alone(
    runtime: LocalRuntime, tmp_path: Path
) -> None:
    warm = warm_runs(tmp_path)
    await warm.keep([POOL])
    to = new_run_id()
    running = await warm.take(POOL, to=to, limits=LIMITS)
    assert running is not None
    await inside(runtime, running, "open('kept', 'w').write('x')")
    supervisor = runtime.folder_of(to).supervisor_pid()
    assert supervisor is not None
    os.kill(supervisor, signal.SIGKILL)
    ended = await until_ended(runtime, to)
    assert (ended.run_id, ended.reason) == (to, "killed")
    assert ended.snapshot is not None, ended.snapshot_error
    assert await warm.keep([POOL]) == 1


async def test_those_that_are_found_after_a_crash_are_used_or_ended(
    runtime: LocalRuntime, tmp_path: Path
) -> None:
    """One waits, one was taken by a server that was killed before it handed it over, and one is of
    a program that is not wanted any more."""
    await warm_runs(tmp_path).keep([POOL, replace(POOL, name="old", count=1)])
    folders = WarmFolders(tmp_path / "runtime")
    [lost, kept] = [run_id for run_id in folders.run_ids("warm") if run_id.id == "tpl"]
    assert folders.of(lost).take()
    os.utime(folders.path_of(lost) / "taken", (1, 1))
    assert await warm_runs(tmp_path).keep([POOL]) == 1
    left = await runtime.list_runs("warm")
    assert {type(run) for run in left} == {Running}
    assert lost not in {run.run_id for run in left}
    assert kept in {run.run_id for run in left}
    assert {run.run_id.id for run in left} == {"tpl"}
    assert await warm_runs(tmp_path).take(POOL, to=RunId("sandbox", "a", "1"), limits=LIMITS)
