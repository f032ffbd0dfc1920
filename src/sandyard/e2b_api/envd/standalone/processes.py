"""`Processes` of the machine that this process runs in: its children, and their output."""

import asyncio
import fcntl
import os
import signal
import struct
import subprocess
import termios
import time
from collections import deque
from collections.abc import AsyncGenerator, AsyncIterator, Sequence
from contextlib import suppress
from dataclasses import replace
from itertools import count

from sandyard.runtime.errors import (
    CommandRefusedError,
    InputClosedError,
    InvalidSignalError,
    NotATerminalError,
    ProcessNotFoundError,
)
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

_PIECE_BYTES = 65536
_RETAINED_BYTES = 4 << 20
_RETAINED_PROCESSES = 100


class SystemProcesses:
    """They end with this process; the output of the last ones that ended is retained."""

    def __init__(self) -> None:
        self._children: dict[str, _Child] = {}
        self._ids = count(1)

    async def start(self, command: Command) -> Process:
        check_command(command)
        try:
            child = _Child(f"p{next(self._ids)}", command)
        except (OSError, subprocess.SubprocessError) as error:
            raise CommandRefusedError(str(error)) from error
        self._children[child.process.id] = child
        ended = [each for each in self._children.values() if not each.process.is_running]
        for each in ended[:-_RETAINED_PROCESSES]:
            del self._children[each.process.id]
        return child.process

    def run(self, command: Command) -> AsyncGenerator[Process | Output]:
        return run_in_steps(self, command)

    async def list(self) -> Sequence[Process]:
        return [each.process for each in self._children.values()]

    async def get(self, process_id: str) -> Process:
        return self._child(process_id).process

    async def wait(self, process_id: str, *, timeout_sec: float | None = None) -> Process:
        child = self._child(process_id)
        with suppress(TimeoutError):
            async with asyncio.timeout(timeout_sec):
                await child.ended.wait()
        return child.process

    async def output(
        self, process_id: str, *, offset: int = 0, follow: bool = False
    ) -> AsyncIterator[Output]:
        child = self._child(process_id)
        while True:
            changed, is_over = child.changed, child.ended.is_set() or not follow
            for each in [each for each in child.output if each.offset > offset]:
                yield _after(each, offset)
                offset = each.offset
            if is_over:
                return
            await changed.wait()

    async def write_input(self, process_id: str, data: bytes) -> None:
        await self._child(process_id).write(data)

    async def close_input(self, process_id: str) -> None:
        self._child(process_id).close_input()

    async def resize(self, process_id: str, size: TerminalSize) -> None:
        child = self._child(process_id)
        if not child.process.is_terminal:
            raise NotATerminalError
        if child.process.is_running:
            _set_size(child.input, size)

    async def signal(self, process_id: str, number: int) -> None:
        if number not in list(signal.Signals):
            raise InvalidSignalError
        child = self._child(process_id)
        if child.process.is_running:
            with suppress(ProcessLookupError):
                os.killpg(child.process.pid, number)

    def _child(self, process_id: str) -> "_Child":
        if process_id not in self._children:
            raise ProcessNotFoundError
        return self._children[process_id]


class _Child:
    """Reads what the process writes until it has ended."""

    def __init__(self, process_id: str, command: Command) -> None:
        self.output: deque[Output] = deque()
        self.changed, self.ended = asyncio.Event(), asyncio.Event()
        self._popen = self._open_terminal(command) if command.terminal else _piped(command)
        self.process = Process(
            id=process_id,
            pid=self._popen.pid,
            arguments=command.arguments,
            folder=command.folder,
            started_at=time.time(),
            tag=command.tag,
            is_terminal=command.terminal is not None,
        )
        if command.terminal is None:
            pipes = self._popen.stdin, self._popen.stdout, self._popen.stderr
            self.input, output, errors = (-1 if each is None else each.fileno() for each in pipes)
            self._outputs: dict[int, Stream] = {output: "stdout", errors: "stderr"}
        self._watch()

    def _open_terminal(self, command: Command) -> "subprocess.Popen[bytes]":
        self.input, theirs = os.openpty()
        self._outputs = {self.input: "terminal"}
        try:
            _set_size(theirs, command.terminal or TerminalSize())
            return _spawn(command, theirs, theirs, theirs)
        except BaseException:
            os.close(self.input)
            raise
        finally:
            os.close(theirs)

    def _watch(self) -> None:
        loop = asyncio.get_running_loop()
        self._pidfd = os.pidfd_open(self.process.pid)
        loop.add_reader(self._pidfd, self._end)
        for descriptor in {self.input, *self._outputs} - {-1}:
            os.set_blocking(descriptor, False)
        for descriptor in self._outputs:
            loop.add_reader(descriptor, self._read, descriptor)

    def _read(self, descriptor: int) -> bool:
        try:
            data = os.read(descriptor, _PIECE_BYTES)
        except BlockingIOError:
            return False
        except OSError:  # a terminal that no process has open
            data = b""
        if data:
            end = (self.output[-1].offset if self.output else 0) + len(data)
            self.output.append(Output(self._outputs[descriptor], data, end))
            while end - self.output[0].offset >= _RETAINED_BYTES:
                self.output.popleft()
            self._notify()
        else:
            asyncio.get_running_loop().remove_reader(descriptor)
        return bool(data)

    def _end(self) -> None:
        loop = asyncio.get_running_loop()
        loop.remove_reader(self._pidfd)
        os.close(self._pidfd)
        code = self._popen.wait()
        for descriptor in self._outputs:
            while self._read(descriptor):
                pass
            loop.remove_reader(descriptor)
        self._close()
        ended_by = -code if code < 0 else None
        self.process = replace(
            self.process,
            exit_code=code if ended_by is None else 128 + ended_by,
            ended_at=time.time(),
            signal=ended_by,
        )
        self.ended.set()
        self._notify()

    def _close(self) -> None:
        if self.process.is_terminal:
            os.close(self.input)
        else:
            for pipe in (self._popen.stdin, self._popen.stdout, self._popen.stderr):
                if pipe is not None:
                    pipe.close()
        self.input = -1

    def close_input(self) -> None:
        """A terminal has no end of file, so its end-of-file key is typed."""
        if self.process.is_terminal and self.input >= 0:
            os.write(self.input, b"\x04")
        elif self._popen.stdin is not None:
            self._popen.stdin.close()
            self.input = -1

    async def write(self, data: bytes) -> None:
        while data:
            if self.input < 0:
                raise InputClosedError
            try:
                data = data[os.write(self.input, data) :]
            except BlockingIOError:
                await self._until_writable(self.input)
            except OSError as error:
                raise InputClosedError from error

    async def _until_writable(self, descriptor: int) -> None:
        """Return when it accepts more input, or has ended."""
        loop, ready = asyncio.get_running_loop(), asyncio.Event()
        loop.add_writer(descriptor, ready.set)
        waited = [asyncio.ensure_future(each.wait()) for each in (ready, self.ended)]
        try:
            await asyncio.wait(waited, return_when=asyncio.FIRST_COMPLETED)
        finally:
            loop.remove_writer(descriptor)
            for each in waited:
                each.cancel()

    def _notify(self) -> None:
        self.changed.set()
        self.changed = asyncio.Event()


def _piped(command: Command) -> "subprocess.Popen[bytes]":
    given = subprocess.PIPE if command.has_input else subprocess.DEVNULL
    return _spawn(command, given, subprocess.PIPE, subprocess.PIPE)


def _spawn(command: Command, stdin: int, stdout: int, stderr: int) -> "subprocess.Popen[bytes]":
    return subprocess.Popen(  # noqa: S603 - to run what callers send is its purpose
        command.arguments,
        stdin=stdin,
        stdout=stdout,
        stderr=stderr,
        bufsize=0,
        cwd=absolute_path(command.folder),
        env=dict(command.environment),
        start_new_session=True,
        preexec_fn=_take_terminal if command.terminal else None,
    )


def _take_terminal() -> None:
    fcntl.ioctl(0, termios.TIOCSCTTY, 0)


def _set_size(terminal: int, size: TerminalSize) -> None:
    fcntl.ioctl(terminal, termios.TIOCSWINSZ, struct.pack("HHHH", size.rows, size.columns, 0, 0))


def _after(output: Output, offset: int) -> Output:
    """Without what was read before."""
    begins_at = output.offset - len(output.data)
    known = max(0, offset - begins_at)
    return replace(output, data=output.data[known:], skipped=max(0, begins_at - offset))
