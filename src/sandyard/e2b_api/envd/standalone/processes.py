"""`Processes` of the machine that this process runs in: its children, in the local supervisor's
table of commands."""

import asyncio
import fcntl
import os
import subprocess
import tempfile
import termios
from collections.abc import AsyncGenerator, AsyncIterator, Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, cast

from sandyard.kit.clock import SystemClock
from sandyard.runtime.errors import (
    CommandRefusedError,
    InputClosedError,
    InputNotTakenError,
    InvalidSignalError,
    NotATerminalError,
    ProcessNotFoundError,
)
from sandyard.runtime.local.agent.processes import open_pipes, open_terminal
from sandyard.runtime.local.ipc.packets import Packet, readable
from sandyard.runtime.local.supervisor.commands import CommandTable, RunningCommand, valid_signal
from sandyard.runtime.local.supervisor.output import OutputSlice
from sandyard.runtime.local.supervisor.output_throttle import OutputThrottle
from sandyard.runtime.sessions.followed_run import run_in_steps
from sandyard.runtime.sessions.model import (
    Command,
    Output,
    Process,
    Stream,
    TerminalSize,
    absolute_path,
    check_command,
)

_PIECE_BYTES = 1 << 16
_INPUT_SEC = 30


class SystemProcesses:
    """They end with this process; the output of the last ones that ended is retained. Their output
    is read at any rate: the CPU for it is the machine's own."""

    pid = None

    def __init__(self) -> None:
        folder, unlimited = Path(tempfile.gettempdir()), OutputThrottle(used_sec=lambda: 0)
        self._table = CommandTable(folder, SystemClock(), unlimited)
        self._watches: set[asyncio.Task[None]] = set()

    async def start(self, command: Command) -> Process:
        check_command(command)
        size = command.terminal
        arguments = {
            "arguments": command.arguments,
            "environment": dict(command.environment),
            "folder": absolute_path(command.folder),
            "terminal": (size.columns, size.rows) if size else None,
            "has_input": command.has_input,
            "tag": command.tag,
            "is_program": False,
        }
        return await self.get(cast("str", await self._table.start(self, arguments)))

    async def ask(self, _name: str, arguments: dict[str, Any]) -> Packet:
        """Starts a process for the table. Raises CommandRefusedError."""
        size = arguments["terminal"]
        ends = (
            open_terminal(*size)
            if size
            else open_pipes(has_input=arguments["has_input"], has_stderr=True)
        )
        try:
            child = _spawn(arguments, ends.inner)
        except (OSError, subprocess.SubprocessError) as error:
            Packet({}, descriptors=ends.outer).close()
            raise CommandRefusedError(str(error)) from error
        finally:
            ends.close_inner()
        watch = asyncio.create_task(self._watch(child))
        self._watches.add(watch)
        watch.add_done_callback(self._watches.discard)
        return Packet({"result": {"pid": child.pid, "channels": ends.names}}, b"", ends.outer)

    async def _watch(self, child: "subprocess.Popen[bytes]") -> None:
        descriptor = os.pidfd_open(child.pid)
        try:
            await readable(descriptor)
        finally:
            os.close(descriptor)
        self._table.record_exit(child.pid, child.wait())

    def run(self, command: Command) -> AsyncGenerator[Process | Output]:
        return run_in_steps(self, command)

    async def list(self) -> Sequence[Process]:
        return [Process(**each) for each in self._table.list()]

    async def get(self, process_id: str) -> Process:
        return Process(**self._command(process_id).state)

    async def wait(self, process_id: str, *, timeout_sec: float | None = None) -> Process:
        command = self._command(process_id)
        with suppress(TimeoutError):
            async with asyncio.timeout(timeout_sec):
                await command.ended.wait()
        return Process(**command.state)

    async def output(
        self, process_id: str, *, offset: int = 0, follow: bool = False
    ) -> AsyncIterator[Output]:
        command = self._command(process_id)
        while True:
            part = command.ring.read(offset, most=_PIECE_BYTES)
            for each in _outputs(part):
                yield each
            offset = part.offset
            if command.ring.end > offset:
                continue
            if not follow or command.ended.is_set():
                return
            await command.until_changed()

    async def write_input(self, process_id: str, data: bytes) -> None:
        try:
            is_taken = await self._command(process_id).write(data, timeout_sec=_INPUT_SEC)
        except TimeoutError as error:
            raise InputNotTakenError from error
        if not is_taken:
            raise InputClosedError

    async def close_input(self, process_id: str) -> None:
        self._command(process_id).close_input()

    async def resize(self, process_id: str, size: TerminalSize) -> None:
        command = self._command(process_id)
        if not command.is_terminal:
            raise NotATerminalError
        command.resize(size.columns, size.rows)

    async def signal(self, process_id: str, number: int) -> None:
        if not valid_signal(number):
            raise InvalidSignalError
        self._command(process_id).signal(number)

    def _command(self, process_id: str) -> RunningCommand:
        if (found := self._table.get(process_id)) is None:
            raise ProcessNotFoundError
        return found


def _spawn(arguments: dict[str, Any], ends: tuple[int, int, int]) -> "subprocess.Popen[bytes]":
    return subprocess.Popen(  # noqa: S603 - to run what callers send is its purpose
        arguments["arguments"],
        stdin=ends[0],
        stdout=ends[1],
        stderr=ends[2],
        cwd=arguments["folder"],
        env=arguments["environment"],
        start_new_session=True,
        preexec_fn=_take_terminal if arguments["terminal"] else None,
    )


def _take_terminal() -> None:
    fcntl.ioctl(0, termios.TIOCSCTTY, 0)


def _outputs(part: OutputSlice) -> Iterator[Output]:
    at, skipped = 0, part.skipped
    for stream, length in part.chunks:
        offset = part.offset - len(part.data) + at + length
        yield Output(cast("Stream", stream), part.data[at : at + length], offset, skipped)
        at, skipped = at + length, 0
