"""What a program writes: its last lines, and each new one until it has ended."""

import asyncio
from collections import defaultdict
from dataclasses import replace

import pytest

from sandyard.runtime.model import FileChanges, RunId
from sandyard.runtime.ports import Runtime
from tests.support.runtime.programs import LIMITS, new_run_id
from tests.support.runtime.runtimes import SERVE, UNTIL_GO, RuntimeHost, serving, web

GO = FileChanges(written={"go": b""})


class Follower:
    """Reads a log in the background; `seen[line]` is set when the line has come."""

    def __init__(self, runtime: Runtime, run_id: RunId, *, lines: int) -> None:
        self.lines: list[str] = []
        self.seen: defaultdict[str, asyncio.Event] = defaultdict(asyncio.Event)
        self.reading = asyncio.create_task(self._read(runtime, run_id, lines))

    async def _read(self, runtime: Runtime, run_id: RunId, lines: int) -> None:
        async for line in runtime.follow_logs(run_id, lines=lines):
            self.lines.append(line)
            self.seen[line].set()


async def test_the_last_lines_are_told_also_after_the_end(
    host: RuntimeHost, runtime: Runtime
) -> None:
    program = serving("echo one", "echo two >&2", "printf 'gr\\303\\274n \\377\\r\\n'")
    run_id = (await runtime.start(new_run_id(), program, LIMITS)).run_id
    written = ["one", "two", "grün \ufffd"]
    for server in (runtime, host.connect()):
        assert await server.tail_logs(run_id, lines=10) == written
        assert await server.tail_logs(run_id, lines=2) == written[1:]
        assert await server.tail_logs(run_id, lines=0) == []
    await runtime.stop(run_id)
    for server in (runtime, host.connect()):
        assert await server.tail_logs(run_id, lines=10) == written
        assert await server.tail_logs(run_id, lines=1) == written[2:]


@pytest.mark.parametrize("lines", [1, 5])
async def test_new_lines_follow_the_last_ones_until_a_stop(runtime: Runtime, lines: int) -> None:
    program = web(f"echo one; echo two; ({UNTIL_GO}; printf 'three\\nfour') & {SERVE}")
    run_id = (await runtime.start(new_run_id(), program, LIMITS)).run_id
    follower = Follower(runtime, run_id, lines=lines)
    async with asyncio.timeout(60):
        await follower.seen["two"].wait()
        await runtime.write_files(run_id, GO)
        await follower.seen["three"].wait()
        await runtime.stop(run_id)
        await follower.reading
    assert follower.lines == [*["one", "two"][-lines:], "three", "four"]


async def test_new_lines_alone_can_be_followed(runtime: Runtime) -> None:
    ticks = "while [ ! -e go ]; do echo tick; sleep 0.05; done"
    program = web(f"echo one; ({ticks}; printf 'two\\nthree') & {SERVE}")
    run_id = (await runtime.start(new_run_id(), program, LIMITS)).run_id
    follower = Follower(runtime, run_id, lines=0)
    async with asyncio.timeout(60):
        await follower.seen["tick"].wait()
        await runtime.write_files(run_id, GO)
        await follower.seen["two"].wait()
        await runtime.stop(run_id)
        await follower.reading
    assert [line for line in follower.lines if line != "tick"] == ["two", "three"]


async def test_following_ends_with_the_program(runtime: Runtime) -> None:
    program = web(f"({SERVE}) & {UNTIL_GO}; echo almost; printf last")
    program = replace(program, policy="ends_machine")
    run_id = (await runtime.start(new_run_id(), program, LIMITS)).run_id
    follower = Follower(runtime, run_id, lines=5)
    async with asyncio.timeout(20):
        await runtime.write_files(run_id, GO)
        await follower.reading
    assert follower.lines == ["almost", "last"]


async def test_of_one_that_has_ended_the_last_lines_are_followed(runtime: Runtime) -> None:
    program = serving("echo one", "echo two", "echo three")
    run_id = (await runtime.start(new_run_id(), program, LIMITS)).run_id
    await runtime.stop(run_id)
    async with asyncio.timeout(10):
        followed = [line async for line in runtime.follow_logs(run_id, lines=2)]
    assert followed == ["two", "three"]
