"""The processes of a fake machine: real ones of this machine."""

import asyncio
import fcntl
import math
import os
import pty
import pwd
import signal
import struct
import subprocess
import termios
import time
from collections import deque
from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from itertools import count
from pathlib import Path
from typing import NamedTuple

from sandyard.runtime.errors import (
    CommandRefusedError,
    InputClosedError,
    NotATerminalError,
    ProcessNotFoundError,
)
from sandyard.runtime.sessions.model import (
    WORKSPACE,
    Command,
    Output,
    Process,
    Stream,
    TerminalSize,
    absolute_path,
)
from sandyard.runtime.sessions.ports import run_in_steps

_CHUNK_BYTES = 65536
_KEPT_BYTES = 4 * 1024 * 1024


@dataclass(frozen=True, slots=True)
class _Piece:
    stream: Stream
    data: bytes
    begins_at: int

    @property
    def ends_at(self) -> int:
        return self.begins_at + len(self.data)


class _Log:
    """The last that a process wrote; readers wait for `changed`."""

    def __init__(self, kept_bytes: float) -> None:
        self._kept_bytes = kept_bytes
        self.pieces: deque[_Piece] = deque()
        self.ends_at = 0
        self.is_closed = False
        self.changed = asyncio.Event()

    def add(self, stream: Stream, data: bytes) -> None:
        self.pieces.append(_Piece(stream, data, self.ends_at))
        self.ends_at += len(data)
        while self.ends_at - self.pieces[0].ends_at >= self._kept_bytes:
            self.pieces.popleft()
        self._tell()

    def close(self) -> None:
        self.is_closed = True
        self._tell()

    def next(self, offset: int) -> Output | None:
        for piece in self.pieces:
            if piece.ends_at > offset:
                begins_at = max(offset, piece.begins_at)
                data = piece.data[begins_at - piece.begins_at :]
                return Output(piece.stream, data, piece.ends_at, skipped=begins_at - offset)
        return None

    def _tell(self) -> None:
        self.changed.set()
        self.changed = asyncio.Event()


class _Started(NamedTuple):
    """A process and the ends of its pipes, or of its terminal, that are on our side."""

    child: "subprocess.Popen[bytes]"
    input: int | None
    outputs: dict[int, Stream]


class _Running:
    """Reads what the process writes until it has ended."""

    def __init__(self, process: Process, started: _Started, *, is_paced: bool) -> None:
        """One that is paced is never blocked here: all of its output is stored."""
        self.process = process
        self.log = _Log(math.inf if is_paced else _KEPT_BYTES)
        self.ended = asyncio.Event()
        self.child, self.input, self.outputs = started
        self._pidfd = os.pidfd_open(self.child.pid)
        loop = asyncio.get_running_loop()
        if self.input is not None:
            os.set_blocking(self.input, False)
        for end in self.outputs:
            os.set_blocking(end, False)
            loop.add_reader(end, self._read, end)
        loop.add_reader(self._pidfd, self._end)

    def close_input(self) -> None:
        if self.input is not None and self.input not in self.outputs:
            os.close(self.input)
        self.input = None

    async def write(self, data: bytes) -> None:
        while data:
            if self.input is None:
                raise InputClosedError
            try:
                data = data[os.write(self.input, data) :]
            except BlockingIOError:
                await self._until_writable(self.input)
            except OSError as error:
                raise InputClosedError from error

    async def _until_writable(self, end: int) -> None:
        loop, ready = asyncio.get_running_loop(), asyncio.Event()
        loop.add_writer(end, ready.set)
        try:
            await ready.wait()
        finally:
            loop.remove_writer(end)

    def _read(self, end: int) -> bool:
        try:
            data = os.read(end, _CHUNK_BYTES)
        except BlockingIOError:
            return False
        except OSError:  # a terminal that nobody has open any more
            data = b""
        if data:
            self.log.add(self.outputs[end], data)
        else:
            asyncio.get_running_loop().remove_reader(end)
        return bool(data)

    def _end(self) -> None:
        loop = asyncio.get_running_loop()
        loop.remove_reader(self._pidfd)
        os.close(self._pidfd)
        code = self.child.wait()
        self.close_input()
        for end in self.outputs:
            while self._read(end):
                pass
            loop.remove_reader(end)
            os.close(end)
        exit_code = code if code >= 0 else 128 - code
        signal = -code if code < 0 else None
        self.process = replace(
            self.process, exit_code=exit_code, ended_at=time.time(), signal=signal
        )
        self.log.close()
        self.ended.set()


class FakeProcesses:
    def __init__(self, folder: Path, *, require_running: Callable[[], None]) -> None:
        self._folder = folder
        self._require_running = require_running
        self._known: dict[str, _Running] = {}
        self._ids = count(1)

    @property
    def pids(self) -> Sequence[int]:
        return [each.process.pid for each in self._known.values() if each.process.is_running]

    async def start(self, command: Command) -> Process:
        self._require_running()
        if command.user is not None:
            try:
                pwd.getpwnam(command.user)
            except (KeyError, ValueError) as error:
                raise CommandRefusedError from error
        try:
            running = self._start(command)
        except (OSError, ValueError, IndexError) as error:
            raise CommandRefusedError from error
        self._known[running.process.id] = running
        return running.process

    def run(self, command: Command) -> AsyncGenerator[Process | Output]:
        return run_in_steps(self, command)

    async def list(self) -> Sequence[Process]:
        self._require_running()
        return [each.process for each in self._known.values()]

    async def get(self, process_id: str) -> Process:
        return self._get(process_id).process

    async def wait(self, process_id: str, *, timeout_sec: float | None = None) -> Process:
        running = self._get(process_id)
        with suppress(TimeoutError):
            async with asyncio.timeout(timeout_sec):
                await running.ended.wait()
        return running.process

    async def output(
        self, process_id: str, *, offset: int = 0, follow: bool = False
    ) -> AsyncGenerator[Output]:
        log = self._get(process_id).log
        while True:
            changed = log.changed
            while output := log.next(offset):
                yield output
                offset = output.offset
            if not follow or log.is_closed:
                return
            await changed.wait()

    async def write_input(self, process_id: str, data: bytes) -> None:
        await self._get(process_id).write(data)

    async def close_input(self, process_id: str) -> None:
        self._get(process_id).close_input()

    async def resize(self, process_id: str, size: TerminalSize) -> None:
        running = self._get(process_id)
        if not running.process.is_terminal:
            raise NotATerminalError
        if running.process.is_running:
            _set_size(next(iter(running.outputs)), size)

    async def signal(self, process_id: str, number: int) -> None:
        running = self._get(process_id)
        if running.process.is_running:
            os.killpg(running.process.pid, number)

    async def end(self) -> None:
        """Kill what still runs, with its group."""
        for running in self._known.values():
            with suppress(ProcessLookupError):
                os.killpg(running.process.pid, signal.SIGKILL)
            await running.ended.wait()

    def _get(self, process_id: str) -> _Running:
        self._require_running()
        if process_id not in self._known:
            raise ProcessNotFoundError
        return self._known[process_id]

    def _start(self, command: Command) -> _Running:
        start = _start_terminal if command.terminal else _start_piped
        inside = absolute_path(command.folder)
        below = inside.removeprefix(WORKSPACE).lstrip("/")
        folder = self._folder / below if inside.startswith(WORKSPACE) else Path(inside)
        environment = {"PATH": os.defpath, "HOME": str(self._folder), **command.environment}
        started = start(command, folder, environment)
        process = Process(
            id=f"p{next(self._ids)}",
            pid=started.child.pid,
            arguments=command.arguments,
            folder=inside,
            started_at=time.time(),
            tag=command.tag,
            is_terminal=command.terminal is not None,
        )
        return _Running(process, started, is_paced=command.is_paced)


def _start_piped(command: Command, folder: Path, environment: Mapping[str, str]) -> _Started:
    ends = [os.pipe() for _ in range(3)]
    (theirs, our_input), (output, their_output), (errors, their_errors) = ends
    if not command.has_input:
        os.close(our_input)
    our_ends = [output, errors, *([our_input] if command.has_input else [])]
    child = _spawn(
        command,
        folder,
        environment,
        stdin=theirs,
        stdout=their_output,
        stderr=their_errors,
        our_ends=our_ends,
    )
    outputs: dict[int, Stream] = {output: "stdout", errors: "stderr"}
    return _Started(child, our_input if command.has_input else None, outputs)


def _start_terminal(command: Command, folder: Path, environment: Mapping[str, str]) -> _Started:
    ours, theirs = pty.openpty()
    _set_size(ours, command.terminal or TerminalSize())
    child = _spawn(
        command, folder, environment, stdin=theirs, stdout=theirs, stderr=theirs, our_ends=[ours]
    )
    return _Started(child, ours, {ours: "terminal"})


def _spawn(
    command: Command,
    folder: Path,
    environment: Mapping[str, str],
    *,
    stdin: int,
    stdout: int,
    stderr: int,
    our_ends: Sequence[int],
) -> "subprocess.Popen[bytes]":
    """Their ends are closed here in any case, ours if it can't be started."""
    is_terminal = command.terminal is not None
    try:
        return subprocess.Popen(
            command.arguments,
            stdin=stdin,
            stdout=stdout,
            stderr=stderr,
            cwd=folder,
            env=environment,
            start_new_session=True,
            preexec_fn=partial(fcntl.ioctl, 0, termios.TIOCSCTTY, 0) if is_terminal else None,
        )
    except BaseException:
        for end in our_ends:
            os.close(end)
        raise
    finally:
        for end in {stdin, stdout, stderr}:
            os.close(end)


def _set_size(terminal: int, size: TerminalSize) -> None:
    packed = struct.pack("HHHH", size.rows, size.columns, 0, 0)
    fcntl.ioctl(terminal, termios.TIOCSWINSZ, packed)
