"""Starts that fail say why, and leave nothing running."""

import asyncio
from dataclasses import replace
from pathlib import Path

import pytest

from sandyard.platform.runtime.errors import (
    ExitedAtOnceError,
    IsolationMissingError,
    NotListeningError,
    OverLimitError,
    ProcfileMissingError,
    RestoreFailedError,
    StartFailedError,
    StoppedWhileStartingError,
    WebLineMissingError,
)
from sandyard.platform.runtime.local.isolation import check_isolation
from sandyard.platform.runtime.local.runtime import LocalRuntime
from sandyard.platform.runtime.local.specs import LocalPolicy
from sandyard.platform.runtime.model import Ended, Files, Program, Repository, Starting
from tests.integration.runtime.programs import (
    LIMITS,
    STATIC,
    fetch,
    inside,
    new_owner,
    shell,
    started,
    until_ended,
)


@pytest.fixture
def impatient(tmp_path: Path) -> LocalRuntime:
    return LocalRuntime(tmp_path / "runtime", LocalPolicy(listen_timeout_sec=1))


async def refused(runtime: LocalRuntime, program: Program) -> StartFailedError:
    """The error of this start, and that it is kept as the end until it is forgotten."""
    owner = new_owner()
    with pytest.raises(StartFailedError) as caught:
        await runtime.start(owner, program, LIMITS)
    ended = await runtime.find(owner)
    assert isinstance(ended, Ended)
    assert (ended.reason, ended.error_code) == ("not_started", caught.value.code)
    assert (ended.started_at, ended.snapshot) == (None, None)
    assert await runtime.stop(owner) == ended
    with pytest.raises(type(caught.value)):
        await runtime.start(owner, program, LIMITS)
    await runtime.forget(owner)
    return caught.value


async def test_without_a_web_line_there_is_nothing_to_run(runtime: LocalRuntime) -> None:
    files = Files({"Procfile": b"worker: true\n# web: no\n  web: no\nweb:\n"})
    assert isinstance(await refused(runtime, Program(files)), WebLineMissingError)


async def test_a_repository_without_a_procfile_is_refused(runtime: LocalRuntime) -> None:
    async with started(runtime) as running:
        await inside(running, "import os; os.remove('Procfile')")
        snapshot = (await runtime.stop(running.owner)).snapshot
    assert snapshot is not None
    program = Program(Repository("builtin:static"), snapshot_id=snapshot.id)
    assert isinstance(await refused(runtime, program), ProcfileMissingError)


async def test_a_program_that_exits_at_once_shows_its_last_lines(runtime: LocalRuntime) -> None:
    error = await refused(runtime, shell("echo first; echo no database >&2; exit 7"))
    assert isinstance(error, ExitedAtOnceError)
    assert "code 7" in error.message
    assert error.details == {"log": ["first", "no database"]}
    error = await refused(runtime, shell("exec no-such-command"))
    assert "127" in error.message
    assert "not found" in error.message


async def test_a_program_that_never_listens_is_given_up(impatient: LocalRuntime) -> None:
    error = await refused(impatient, shell("echo dreaming; sleep 50"))
    assert isinstance(error, NotListeningError)
    assert "within 1 s" in error.message
    assert "dreaming" in error.message


async def test_a_program_that_takes_too_much_before_it_listens_is_ended(
    runtime: LocalRuntime,
) -> None:
    hog = "import os, time; os.fork(), os.fork(); x = bytearray(b'x' * (90 << 20)); time.sleep(50)"
    error = await refused(runtime, shell(f'exec python3 -c "{hog}"'))
    assert isinstance(error, OverLimitError)
    assert "memory" in error.message


async def test_stop_during_start_leaves_nothing(runtime: LocalRuntime) -> None:
    for wait_sec in (0, 0.01, 0.05, 0.1, 0.2, 0.4):
        owner = new_owner()
        start = asyncio.create_task(runtime.start(owner, shell("sleep 50"), LIMITS))
        while await runtime.find(owner) is None:
            await asyncio.sleep(0)
        await asyncio.sleep(wait_sec)
        ended = await runtime.stop(owner)
        assert (ended.reason, ended.error_code) == ("not_started", "STOPPED_WHILE_STARTING")
        with pytest.raises(StoppedWhileStartingError):
            await start
        await runtime.forget(owner)


async def test_a_start_shows_as_starting_until_it_listens(impatient: LocalRuntime) -> None:
    owner = new_owner()
    start = asyncio.create_task(impatient.start(owner, shell("sleep 50"), LIMITS))
    await asyncio.sleep(0.5)
    held = await impatient.find(owner)
    assert isinstance(held, Starting)
    assert await impatient.list_held("sandbox") == [held]
    with pytest.raises(NotListeningError):
        await start


async def test_a_broken_snapshot_is_told(runtime: LocalRuntime, tmp_path: Path) -> None:
    async with started(runtime, STATIC) as running:
        snapshot = (await runtime.stop(running.owner)).snapshot
    assert snapshot is not None
    path = tmp_path / "runtime/snapshots" / f"{snapshot.id}.snapshot"
    path.write_bytes(path.read_bytes()[:100])
    program = replace(STATIC, snapshot_id=snapshot.id)
    assert isinstance(await refused(runtime, program), RestoreFailedError)


async def test_a_flood_of_output_slows_only_its_own_program(runtime: LocalRuntime) -> None:
    flood = 'yes "a long line that says nothing at all" & exec python3 -m http.server "$PORT"'
    async with started(runtime, shell(flood)) as running:
        await asyncio.sleep(1.5)
        logs = runtime.workspace_of(running.owner).parent / "logs"
        assert sum(piece.stat().st_size for piece in logs.iterdir()) <= 1_048_576 + 65536
        assert len(await runtime.tail_logs(running.owner, lines=50)) == 50
        assert b"Procfile" in await fetch(running.url)
        ended = await runtime.stop(running.owner)
        assert ended.reason == "stopped"


async def test_a_program_that_ends_by_itself_is_recorded_with_its_code(
    runtime: LocalRuntime,
) -> None:
    ends = {
        "import os; os._exit(5)": 5,
        "import os, signal; os.kill(os.getpid(), signal.SIGKILL)": 137,
    }
    for code, exit_code in ends.items():
        async with started(runtime) as running:
            with pytest.raises(OSError, match=r"closed|reset"):
                await inside(running, f"open('kept', 'w'); {code}")
            ended = await until_ended(runtime, running.owner)
            assert (ended.reason, ended.exit_code) == ("exited", exit_code)
            assert ended.snapshot is not None


def test_where_bubblewrap_is_missing_it_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "/nowhere")
    with pytest.raises(IsolationMissingError, match="SANDBOX_ISOLATION=none"):
        check_isolation("bubblewrap", uid=None)
    check_isolation("none", uid=None)


@pytest.mark.parametrize("after_ms", range(0, 120, 10))
async def test_a_stop_at_any_instant_of_a_start_is_answered(
    runtime: LocalRuntime, after_ms: int
) -> None:
    owner = new_owner()
    starting = asyncio.ensure_future(
        runtime.start(owner, Program(Repository("builtin:static")), LIMITS)
    )
    while await runtime.find(owner) is None:
        await asyncio.sleep(0.002)
    await asyncio.sleep(after_ms / 1000)
    async with asyncio.timeout(30):
        ended = await runtime.stop(owner)
    assert isinstance(ended, Ended)
    await asyncio.wait([starting])
    if starting.exception() is not None:
        assert isinstance(starting.exception(), StoppedWhileStartingError)
