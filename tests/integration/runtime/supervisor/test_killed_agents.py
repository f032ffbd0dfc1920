"""The agent of a machine is killed at each step: what it was asked ends, and the next is there."""

import asyncio
import os
import signal
from collections.abc import AsyncIterator

import psutil
import pytest

from sandyard.kit.errors import SandyardError
from sandyard.runtime.errors import RuntimeUnavailableError
from sandyard.runtime.local.agent.agent import NAME
from sandyard.runtime.model import RunId
from sandyard.runtime.sessions.model import Command, FileChange
from sandyard.runtime.sessions.ports import Session
from tests.integration.runtime.supervisor.test_crashes import supervisor_of
from tests.support.runtime.local_runtime import LocalRuntime
from tests.support.runtime.programs import LIMITS, MEGABYTE, OBEDIENT, new_run_id

_LINES = 300
_WITHIN_SEC = 30


class Entered:
    def __init__(self, runtime: LocalRuntime, run_id: RunId, session: Session) -> None:
        self._runtime = runtime
        self._run_id = run_id
        self.session = session

    def kill_agent(self) -> None:
        supervisor = psutil.Process(supervisor_of(self._runtime, self._run_id))
        [agent] = [each for each in supervisor.children() if each.cmdline()[0] == NAME]
        os.kill(agent.pid, signal.SIGKILL)

    async def content_of(self, path: str) -> bytes:
        async with asyncio.timeout(_WITHIN_SEC):
            while True:
                try:
                    return b"".join([each async for each in self.session.files.read(path)])
                except RuntimeUnavailableError:
                    await asyncio.sleep(0.01)  # whom it asked has just been killed


@pytest.fixture
async def entered(runtime: LocalRuntime) -> Entered:
    run_id = new_run_id()
    await runtime.start(run_id, OBEDIENT, LIMITS)
    return Entered(runtime, run_id, await runtime.session(run_id))


async def test_output_has_no_gap_and_no_double(entered: Entered) -> None:
    line = f"for n in $(seq {_LINES}); do echo $n; sleep 0.002; done; exit 7"
    processes = entered.session.processes
    process = await processes.start(Command(("/bin/sh", "-c", line)))
    said = b""
    async with asyncio.timeout(_WITHIN_SEC):
        async for output in processes.output(process.id, follow=True):
            assert output.skipped == 0
            if not said:
                entered.kill_agent()
            said += output.data
        done = await processes.wait(process.id, timeout_sec=_WITHIN_SEC)
    assert [int(each) for each in said.split()] == [*range(1, _LINES + 1)]
    assert done.exit_code == 7
    assert b"http" in await entered.content_of("app.py")


async def test_a_watch_ends_and_holds_up_nobody(entered: Entered) -> None:
    """Its process was the agent's child, and had the agent's way to the supervisor."""
    ready = asyncio.Event()

    async def watch() -> list[FileChange]:
        watching = entered.session.files.watch("/workspace", ready=ready)
        return [change async for change in watching]

    watching = asyncio.create_task(watch())
    await ready.wait()
    entered.kill_agent()
    assert b"http" in await entered.content_of("app.py")
    async with asyncio.timeout(_WITHIN_SEC):
        await watching


async def test_a_file_that_is_being_written_is_there_whole_or_not_at_all(entered: Entered) -> None:
    async def content(piece: bytes, *, is_hit: bool = False) -> AsyncIterator[bytes]:
        yield piece
        if is_hit:
            entered.kill_agent()
        yield piece

    files = entered.session.files
    await files.write("file", content(b"old "))
    try:
        async with asyncio.timeout(_WITHIN_SEC):
            await files.write("file", content(b"new " * MEGABYTE, is_hit=True))
        expected = b"new " * 2 * MEGABYTE
    except SandyardError:
        expected = b"old old "
    assert await entered.content_of("file") == expected


@pytest.mark.parametrize("step", ["before", "middle"])
async def test_an_archive_is_whole_or_an_error(entered: Entered, step: str) -> None:
    async def read() -> bytes:
        found = b""
        async for piece in entered.session.files.read_tar("/workspace"):
            if step == "middle" and not found:
                entered.kill_agent()
            found += piece
        return found

    async def large() -> AsyncIterator[bytes]:
        yield bytes(8 * MEGABYTE)

    await entered.session.files.write("large", large())
    if step == "before":
        entered.kill_agent()
    async with asyncio.timeout(_WITHIN_SEC):
        try:
            assert len(await read()) > 8 * MEGABYTE
        except RuntimeUnavailableError:
            assert len(await entered.content_of("large")) == 8 * MEGABYTE
