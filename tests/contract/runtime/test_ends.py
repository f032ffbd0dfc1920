"""How runs end, and what is known of them until they are forgotten."""

import asyncio
import time
from collections.abc import Awaitable
from dataclasses import replace
from uuid import uuid4

import psutil
import pytest

from sandyard.runtime.errors import NotRunningError, RunNotFoundError, StillRunningError
from sandyard.runtime.model import FileChanges, RunId
from sandyard.runtime.ports import Runtime
from tests.support.runtime.programs import LIMITS, STATIC, new_run_id
from tests.support.runtime.runtimes import (
    SERVE,
    UNTIL_GO,
    RuntimeHost,
    serving,
    until_ended,
    until_no_machine_is_left,
    until_silent,
    web,
)

GO = FileChanges(written={"go": b""})


def calls_on(runtime: Runtime, run_id: RunId) -> dict[str, Awaitable[object]]:
    """What can be asked of a run, but for finding, starting and forgetting it."""
    return {
        "stop": runtime.stop(run_id),
        "extend": runtime.extend(run_id, deadline_at=time.time() + 60),
        "sample": runtime.sample(run_id),
        "tail_logs": runtime.tail_logs(run_id, lines=1),
        "follow_logs": anext(runtime.follow_logs(run_id)),
        "write_files": runtime.write_files(run_id, GO),
    }


def sleeping(marks: set[str]) -> set[str]:
    """Those for which a process sleeps, wherever on this machine."""
    words = (process.info["cmdline"] or [] for process in psutil.process_iter(["cmdline"]))
    return marks & {word for each in words for word in each}


async def test_stop_tells_the_same_end_however_often_it_is_asked(
    host: RuntimeHost, runtime: Runtime
) -> None:
    running = await runtime.start(new_run_id(), STATIC, LIMITS)
    run_id = running.run_id
    [ended] = set(await asyncio.gather(*(runtime.stop(run_id) for _ in range(5))))
    assert (ended.reason, ended.started_at) == ("stopped", running.started_at)
    assert running.started_at < ended.ended_at <= time.time()
    assert ended.snapshot is not None
    assert ended.message
    assert await runtime.stop(run_id) == await runtime.refresh(run_id) == ended
    assert await host.connect().stop(run_id) == ended
    await until_silent(host, running)
    await until_no_machine_is_left(host)


async def test_another_server_adopts_what_runs(host: RuntimeHost, runtime: Runtime) -> None:
    first = await runtime.start(new_run_id(), serving("echo here"), LIMITS)
    second = await runtime.start(new_run_id(), STATIC, LIMITS)
    restarted = host.connect()
    assert await restarted.list_runs("sandbox") == [first, second]
    assert await restarted.tail_logs(first.run_id, lines=5) == ["here"]
    assert (await restarted.sample(first.run_id)).processes > 0
    assert await restarted.start(first.run_id, STATIC, LIMITS) == first
    ended = await restarted.stop(first.run_id)
    assert (ended.reason, ended.snapshot is None) == ("stopped", False)
    assert await runtime.refresh(first.run_id) == ended
    assert (await host.page(second)).is_success


async def test_all_processes_end_with_it(runtime: Runtime) -> None:
    marks = {f"9{uuid4().int % 10**8}" for _ in range(3)}
    detached, obstinate, orphaned = (f"sleep {mark}" for mark in marks)
    background = f"setsid {detached} & (trap '' TERM; {obstinate}) & (({orphaned}) &);"
    running = await runtime.start(new_run_id(), web(f"{background} {SERVE}"), LIMITS)
    assert sleeping(marks) == marks
    await runtime.stop(running.run_id)
    assert sleeping(marks) == set()


async def test_it_ends_at_its_deadline_whether_somebody_asks_or_not(
    host: RuntimeHost, runtime: Runtime
) -> None:
    limits = replace(LIMITS, max_running_sec=1.5)
    running = await runtime.start(new_run_id(), STATIC, limits)
    await until_silent(host, running)
    assert time.time() >= running.deadline_at
    ended = await until_ended(host.connect(), running.run_id)
    assert (ended.reason, ended.started_at) == ("timeout", running.started_at)
    assert 0 <= ended.ended_at - running.deadline_at < 10
    assert ended.snapshot is not None
    await until_no_machine_is_left(host)


async def test_one_that_may_not_run_at_all_has_run_all_the_same(runtime: Runtime) -> None:
    limits = replace(LIMITS, max_running_sec=0)
    running = await runtime.start(new_run_id(), STATIC, limits)
    ended = await until_ended(runtime, running.run_id)
    assert (ended.reason, ended.started_at) == ("timeout", running.started_at)


async def test_its_deadline_can_be_moved_later_and_earlier(
    host: RuntimeHost, runtime: Runtime
) -> None:
    limits = replace(LIMITS, max_running_sec=3)
    running = await runtime.start(new_run_id(), STATIC, limits)
    run_id, later = running.run_id, running.deadline_at + 60
    moved = await runtime.extend(run_id, deadline_at=later)
    assert moved.deadline_at == pytest.approx(later, abs=2)
    assert moved == replace(running, deadline_at=moved.deadline_at)
    assert await runtime.refresh(run_id) == await host.connect().refresh(run_id) == moved
    await asyncio.sleep(running.deadline_at + 0.5 - time.time())
    assert await runtime.refresh(run_id) == moved
    earlier = await runtime.extend(run_id, deadline_at=time.time() + 1)
    ended = await until_ended(runtime, run_id)
    assert ended.reason == "timeout"
    assert 0 <= ended.ended_at - earlier.deadline_at < 10


async def test_one_that_ends_with_its_program_is_told_with_its_code(
    host: RuntimeHost, runtime: Runtime
) -> None:
    program = web(f"({SERVE}) & {UNTIL_GO}; kill -KILL $$")
    running = await runtime.start(new_run_id(), replace(program, policy="ends_machine"), LIMITS)
    await runtime.write_files(running.run_id, GO)
    ended = await until_ended(runtime, running.run_id)
    assert (ended.reason, ended.exit_code) == ("exited", 137)
    assert (ended.started_at, ended.snapshot is None) == (running.started_at, False)
    assert await runtime.stop(running.run_id) == ended
    await until_no_machine_is_left(host)


async def test_one_that_was_lost_is_told_as_killed(host: RuntimeHost, runtime: Runtime) -> None:
    running = await runtime.start(new_run_id(), STATIC, LIMITS)
    await host.kill(running)
    ended = await until_ended(runtime, running.run_id)
    assert (ended.reason, ended.started_at) == ("killed", running.started_at)
    assert running.started_at <= ended.ended_at <= time.time()
    assert (ended.snapshot is None) == (ended.snapshot_error is not None)
    assert await runtime.stop(running.run_id) == ended
    await until_silent(host, running)


async def test_what_has_ended_does_not_run_and_what_runs_is_not_forgotten(
    runtime: Runtime,
) -> None:
    run_id = new_run_id()
    await runtime.start(run_id, STATIC, LIMITS)
    with pytest.raises(StillRunningError):
        await runtime.forget(run_id)
    await runtime.stop(run_id)
    calls = calls_on(runtime, run_id)
    for name in ("extend", "sample", "write_files"):
        with pytest.raises(NotRunningError):
            await calls.pop(name)
    await asyncio.gather(*calls.values(), return_exceptions=True)


async def test_of_what_was_forgotten_only_the_snapshot_is_left(runtime: Runtime) -> None:
    run_id = new_run_id()
    await runtime.start(run_id, STATIC, LIMITS)
    ended = await runtime.stop(run_id)
    for _ in range(2):
        await runtime.forget(run_id)
        assert await runtime.refresh(run_id) is None
    assert await runtime.list_runs("sandbox") == []
    assert await runtime.list_snapshots() == [ended.snapshot]
    for call in calls_on(runtime, run_id).values():
        with pytest.raises(RunNotFoundError):
            await call


async def test_a_list_has_all_runs_of_its_kind_and_no_other(
    host: RuntimeHost, runtime: Runtime
) -> None:
    preview, other = RunId("preview", "p1", "a1"), RunId("sandbox", "another", "1")
    first = await runtime.start(new_run_id(), STATIC, LIMITS)
    second = await runtime.start(other, STATIC, LIMITS)
    third = await runtime.start(preview, STATIC, LIMITS)
    for server in (runtime, host.connect()):
        assert set(await server.list_runs("sandbox")) == {first, second}
        assert await server.list_runs("preview") == [third]
    ended = await runtime.stop(preview)
    assert await runtime.list_runs("preview") == [ended]
    assert set(await runtime.list_runs("sandbox")) == {first, second}
