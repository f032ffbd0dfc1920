"""Processes of this machine: what is retained of them."""

import asyncio
from pathlib import Path

import pytest

from sandyard.e2b_api.envd.standalone.machine import SystemClient
from sandyard.runtime.errors import (
    CommandRefusedError,
    InputClosedError,
    InvalidSignalError,
    ProcessNotFoundError,
)
from sandyard.runtime.local.client.session import LocalSession
from sandyard.runtime.sessions.model import Command

ENVIRONMENT = {"PATH": "/usr/bin:/bin"}


def command(tmp_path: Path, script: str, *, has_input: bool = False) -> Command:
    arguments = ("/bin/sh", "-c", script)
    return Command(arguments, ENVIRONMENT, folder=str(tmp_path), has_input=has_input)


async def test_output_is_read_from_any_offset(tmp_path: Path) -> None:
    processes = LocalSession(SystemClient()).processes
    process = await processes.start(command(tmp_path, "printf 0123456789"))
    await processes.wait(process.id)
    [rest] = [each async for each in processes.output(process.id, offset=4)]
    assert (rest.data, rest.offset, rest.skipped) == (b"456789", 10, 0)
    assert [each async for each in processes.output(process.id, offset=10, follow=True)] == []


async def test_only_the_last_output_is_retained(tmp_path: Path) -> None:
    processes = LocalSession(SystemClient()).processes
    process = await processes.start(command(tmp_path, "head -c 6000000 /dev/zero"))
    await processes.wait(process.id)
    first, *others = [each async for each in processes.output(process.id)]
    retained = len(first.data) + sum(len(each.data) for each in others)
    assert first.skipped + retained == 6_000_000
    assert 4 << 20 <= retained < 5 << 20


async def test_a_child_that_holds_the_output_open_is_not_waited_for(tmp_path: Path) -> None:
    processes = LocalSession(SystemClient()).processes
    process = await processes.start(command(tmp_path, "sleep 60 & echo done"))
    async with asyncio.timeout(30):
        assert (await processes.wait(process.id)).exit_code == 0
        [output] = [each async for each in processes.output(process.id, follow=True)]
    assert output.data == b"done\n"
    await processes.signal(process.id, 9)


async def test_the_oldest_that_ended_are_forgotten(tmp_path: Path) -> None:
    processes = LocalSession(SystemClient()).processes
    first = await processes.start(command(tmp_path, "true"))
    await processes.wait(first.id)
    for _ in range(101):
        await processes.wait((await processes.start(command(tmp_path, "true"))).id)
    with pytest.raises(ProcessNotFoundError):
        await processes.get(first.id)


async def test_input_that_nothing_reads(tmp_path: Path) -> None:
    processes = LocalSession(SystemClient()).processes
    process = await processes.start(command(tmp_path, "true"))
    with pytest.raises(InputClosedError):
        await processes.write_input(process.id, b"x")
    reading = await processes.start(command(tmp_path, "exec sleep 60", has_input=True))
    writing = asyncio.create_task(processes.write_input(reading.id, b"x" * 1_000_000))
    await asyncio.sleep(0.05)
    await processes.signal(reading.id, 9)
    with pytest.raises(InputClosedError):
        await writing
    assert (await processes.wait(reading.id)).signal == 9


async def test_refusals(tmp_path: Path) -> None:
    processes = LocalSession(SystemClient()).processes
    with pytest.raises(CommandRefusedError):
        await processes.start(Command(("no-such-program",), ENVIRONMENT, folder=str(tmp_path)))
    with pytest.raises(CommandRefusedError):
        await processes.start(Command((), ENVIRONMENT, folder=str(tmp_path)))
    process = await processes.start(command(tmp_path, "true"))
    with pytest.raises(InvalidSignalError):
        await processes.signal(process.id, 1000)
    assert (await processes.wait(process.id, timeout_sec=30)).exit_code == 0
