"""Processes with a terminal, as every session promises them."""

import asyncio
import signal

import pytest

from sandyard.runtime.errors import NotATerminalError
from sandyard.runtime.sessions.model import Command, Process, TerminalSize
from sandyard.runtime.sessions.ports import Session


async def open_shell(session: Session, size: TerminalSize) -> Process:
    command = Command(("sh",), terminal=size, environment={"PS1": "", "TERM": "xterm"})
    return await session.processes.start(command)


async def said(session: Session, process: Process, keys: bytes, wanted: bytes) -> None:
    """Type, and return when this is seen behind what was there before."""
    offset = 0
    async for output in session.processes.output(process.id):
        offset = output.offset
    await session.processes.write_input(process.id, keys)
    seen = b""
    async with asyncio.timeout(20):
        async for output in session.processes.output(process.id, offset=offset, follow=True):
            assert output.stream == "terminal"
            seen += output.data
            if wanted in seen:
                return
    raise AssertionError(seen)


async def test_a_terminal_has_a_size_that_changes(session: Session) -> None:
    process = await open_shell(session, TerminalSize(columns=100, rows=30))
    assert process.is_terminal
    await said(session, process, b"stty size\n", b"30 100")
    await session.processes.resize(process.id, TerminalSize(columns=132, rows=50))
    await said(session, process, b"stty size\n", b"50 132")
    await said(session, process, b"test -t 0 && test -t 2 && echo y''es\n", b"yes")
    await session.processes.write_input(process.id, b"exit 5\n")
    assert (await session.processes.wait(process.id, timeout_sec=20)).exit_code == 5


async def test_keys_interrupt_what_runs_in_a_terminal(session: Session) -> None:
    process = await open_shell(session, TerminalSize())
    await said(session, process, b"sh -c 'echo re\"\"ady; exec sleep 600'\n", b"ready")
    await session.processes.write_input(process.id, b"\x03")
    await said(session, process, b"echo ba''ck\n", b"back")
    await session.processes.write_input(process.id, b"\x04")
    await session.processes.wait(process.id, timeout_sec=20)


async def test_a_terminal_that_hangs_up_ends_its_shell(session: Session) -> None:
    process = await open_shell(session, TerminalSize())
    await session.processes.signal(process.id, signal.SIGHUP)
    ended = await session.processes.wait(process.id, timeout_sec=20)
    assert ended.exit_code == 128 + signal.SIGHUP


async def test_what_has_no_terminal_has_no_size(session: Session) -> None:
    process = await session.processes.start(Command(("sleep", "600")))
    assert not process.is_terminal
    with pytest.raises(NotATerminalError):
        await session.processes.resize(process.id, TerminalSize())
