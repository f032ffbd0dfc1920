"""Shells and commands of an SSH connection."""

import asyncio
import signal
from collections.abc import AsyncIterator
from contextlib import aclosing, suppress

import asyncssh

from sandyard.kit.errors import SandyardError
from sandyard.platform.sessions.ssh.access import SandboxAccess, in_background
from sandyard.platform.sessions.terminals.service import LOGIN_SHELL
from sandyard.runtime.sessions.model import Command, Output, Process, TerminalSize
from sandyard.runtime.sessions.ports import Processes

_IN_BASH = ("/bin/sh", "-c", 'command -v bash >/dev/null && exec bash -c "$0"; exec sh -c "$0"')
_LOCALE = ("LANG", "LC_")
_PIECE_BYTES = 64 * 1024
_MOST_CELLS = 1000
FAILED = 254

SshProcess = asyncssh.SSHServerProcess[bytes]


async def run_command(access: SandboxAccess, process: SshProcess) -> None:
    """Its process is hung up when the channel is closed; one without a terminal only loses its
    input and output. Raises the errors of opening a session."""
    processes, command = await access.prepared(_command_of(process))
    process.exit(await _Running(process, processes, access.may_write).serve(command))


def _command_of(process: SshProcess) -> Command:
    words = LOGIN_SHELL if process.command is None else (*_IN_BASH, process.command)
    environment = {name: value for name, value in process.env.items() if name.startswith(_LOCALE)}
    if process.term_type is None:
        return Command(words, environment=environment, has_input=True, is_paced=True)
    columns, rows, *_ = process.term_size
    environment["TERM"] = process.term_type
    return Command(words, environment=environment, terminal=_size(columns, rows), is_paced=True)


def _size(columns: int, rows: int) -> TerminalSize:
    return TerminalSize(
        min(max(columns, 1), _MOST_CELLS) if columns else 80,
        min(max(rows, 1), _MOST_CELLS) if rows else 24,
    )


class _Running:
    def __init__(self, channel: SshProcess, processes: Processes, may_write: asyncio.Event) -> None:
        self._channel = channel
        self._may_write = may_write
        self._processes = processes
        self._has_terminal = channel.term_type is not None

    async def serve(self, command: Command) -> int:
        """Its exit code. Returns earlier if the channel is closed."""
        async with aclosing(self._processes.run(command)) as messages:
            process = await anext(messages)
            assert isinstance(process, Process)  # noqa: S101 - it comes first
            showing = asyncio.create_task(self._show(messages))
            closed = asyncio.create_task(self._channel.wait_closed())
            async with in_background(self._type(process.id)):
                await asyncio.wait({showing, closed}, return_when=asyncio.FIRST_COMPLETED)
            closed.cancel()
            if showing.done():
                return showing.result()
            showing.cancel()
            await asyncio.wait({showing})
            if self._has_terminal:
                await self._signal(process.id, signal.SIGHUP)
            return FAILED

    async def _show(self, messages: AsyncIterator[Process | Output]) -> int:
        async for each in messages:
            if isinstance(each, Process):
                return each.exit_code or 0
            to = self._channel.stderr if each.stream == "stderr" else self._channel.stdout
            to.write(each.data)
            await to.drain()
            await self._may_write.wait()
        return FAILED

    async def _type(self, process_id: str) -> None:
        """What is typed, sizes of the terminal and signals, until the input ends."""
        with suppress(SandyardError):
            while True:
                try:
                    data = await self._channel.stdin.read(_PIECE_BYTES)
                except asyncssh.TerminalSizeChanged as changed:
                    size = _size(changed.width, changed.height)
                    await self._processes.resize(process_id, size)
                except asyncssh.SignalReceived as received:
                    await self._signal(process_id, getattr(signal, f"SIG{received.signal}", 0))
                except asyncssh.BreakReceived:
                    await self._signal(process_id, signal.SIGINT)
                else:
                    if not data:
                        break
                    await self._processes.write_input(process_id, data)
            if not self._has_terminal:
                await self._processes.close_input(process_id)

    async def _signal(self, process_id: str, number: int) -> None:
        with suppress(SandyardError):
            await self._processes.signal(process_id, number)
