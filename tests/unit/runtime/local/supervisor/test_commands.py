"""A command's input: whoever writes it waits for one that reads, and not for one that does not."""

import asyncio
import os
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from sandyard.runtime.local.supervisor.commands import RunningCommand
from sandyard.runtime.local.supervisor.output import OutputRing, OutputThrottle
from sandyard.runtime.local.supervisor.process_groups import ProcessGroup

_MORE_THAN_A_PIPE = bytes(1 << 20)


@pytest.fixture
async def piped(tmp_path: Path) -> AsyncIterator[tuple[RunningCommand, int]]:
    """A command, and where its input can be read."""
    reader, writer = os.pipe()
    told = {"id": "1", "pid": os.getpid(), "exit_code": None, "ended_at": None}
    group = ProcessGroup(os.getpid(), parents=())
    ring = OutputRing(tmp_path, size=1024)
    command = RunningCommand(told, group, {"stdin": writer}, ring, OutputThrottle())
    yield command, reader
    command.close_input()
    os.close(reader)


async def test_one_that_reads_nothing_is_not_waited_for(piped: tuple[RunningCommand, int]) -> None:
    command, _ = piped
    with pytest.raises(TimeoutError):
        await command.write(_MORE_THAN_A_PIPE, timeout_sec=0.05)


async def test_one_that_reads_slowly_gets_all_of_it(piped: tuple[RunningCommand, int]) -> None:
    command, reader = piped
    writing = asyncio.create_task(command.write(_MORE_THAN_A_PIPE, timeout_sec=5))
    read = 0
    while read < len(_MORE_THAN_A_PIPE):
        read += len(await asyncio.to_thread(os.read, reader, 1 << 16))
    assert await writing
