"""Starts a process and stays with it: stores its output, and records how it ended."""

import fcntl
import json
import os
import select
import shutil
import signal
import subprocess
import time
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import asdict, replace
from typing import Any

from . import PATHS, PROCESSES, STATE, RefusedError, processes
from .channels import open_pipes, open_terminal, take_terminal
from .machine import listening
from .processes import PROGRAM, Writer
from .program import ProgramState, ended, starting

_PIECE_BYTES = 65536
_GRACE_SEC = 2.0
_POLL_SEC, _LISTEN_POLL_SEC = 0.05, 0.05


def start(process_id: str) -> Iterator[dict[str, Any]]:
    """Start the process of the uploaded `command.json` and yield it; nothing more is yielded until
    it has ended."""
    folder = os.path.join(PROCESSES, process_id)
    with open(os.path.join(folder, "command.json"), encoding="utf-8") as file:
        command = json.load(file)
    if command["program"] is not None:
        stop()
        with suppress(FileNotFoundError):
            os.unlink(os.path.join(folder, "ended.json"))
    try:
        shim = _Shim(folder, command)
    except (OSError, ValueError, IndexError) as error:
        shutil.rmtree(folder)
        raise RefusedError("COMMAND_REFUSED", str(error)) from error
    record = shim.describe(process_id, command)
    processes.write(folder, "process", record)
    processes.drop_oldest()
    yield record
    watch = None if command["program"] is None else _Watch(command, shim)
    while True:
        code = shim.stay(watch)
        processes.write(folder, "ended", {"exit_code": code, "ended_at": time.time()})
        if watch is None or not watch.restarts(code):
            return
        shim.start_again(command)
        processes.write(folder, "process", shim.describe(process_id, command))
        os.unlink(os.path.join(folder, "ended.json"))


def stop() -> None:
    """End the machine's program with its process group, and its shim, which starts it no more."""
    folder = os.path.join(PROCESSES, PROGRAM)
    for number in (signal.SIGTERM, signal.SIGKILL):
        until = time.monotonic() + _GRACE_SEC
        if not processes.is_unwatched(folder):
            program = processes.get(PROGRAM)
            with suppress(ProcessLookupError):
                os.kill(program["shim"], number)
            processes.signal(PROGRAM, number)
        while not processes.is_unwatched(folder) and time.monotonic() < until:
            time.sleep(_POLL_SEC)
    last = processes.read(STATE, "program")
    if last is not None and last["status"] != "stopped":
        _write_state(ProgramState("stopped", time.time(), last["policy"]))


class _Watch:
    """The state of the machine's program, and whether it is started again."""

    def __init__(self, command: dict[str, Any], shim: "_Shim") -> None:
        self._shim = shim
        self._port = int(command["environment"]["PORT"])
        self._state = starting(time.time(), command["program"])
        self._started_at = self._state.since_at
        _write_state(self._state)

    def is_listening(self) -> bool:
        """Whether its port listens; recorded once."""
        if self._state.status == "starting" and self._port in listening():
            self._state = replace(self._state, status="running", since_at=time.time())
            _write_state(self._state)
        return self._state.status == "running"

    def restarts(self, code: int) -> bool:
        """Returns after the pause that precedes the next start, if there is one."""
        self._state = ended(self._state, code, started_at=self._started_at, at=time.time())
        _write_state(self._state)
        if self._state.restarts_at is None:
            return False
        while not self._shim.is_stopping and time.time() < self._state.restarts_at:
            time.sleep(_POLL_SEC)
        if self._shim.is_stopping:
            return False
        self._state = starting(time.time(), self._state.policy, after=self._state)
        self._started_at = self._state.since_at
        _write_state(self._state)
        return True


class _Shim:
    def __init__(self, folder: str, command: dict[str, Any]) -> None:
        self.is_stopping = False
        signal.signal(signal.SIGTERM, self._stop)  # the child is ended with the machine
        signal.signal(signal.SIGHUP, lambda *_: None)
        self._lock = open(os.path.join(folder, "lock"), "wb")  # noqa: SIM115 - held to the end
        fcntl.flock(self._lock, fcntl.LOCK_EX)
        self._writer = Writer(folder)
        self._terminal: int | None = None
        self._terminal_name: str | None = None
        self._typed = b""
        self._child = self._spawn(command)
        self._inputs: set[int] = {0} if self._terminal is not None else set()
        if not self._inputs:
            _close_input()  # only the child has it

    def describe(self, process_id: str, command: dict[str, Any]) -> dict[str, Any]:
        return {
            "id": process_id,
            "pid": self._child.pid,
            "shim": os.getpid(),
            "arguments": command["arguments"],
            "folder": PATHS.as_seen(PATHS.real_path(command["folder"])),
            "started_at": time.time(),
            "tag": command["tag"],
            "has_input": command["has_input"],
            "is_terminal": self._terminal is not None,
            "terminal": self._terminal_name,
        }

    def _stop(self, *_: object) -> None:
        self.is_stopping = True

    def start_again(self, command: dict[str, Any]) -> None:
        for descriptor in self._outputs:  # others hold them open
            os.close(descriptor)
        self._child = self._spawn(command)

    def stay(self, watch: _Watch | None) -> int:
        """Return the exit code when the process has ended, even if others hold its output open."""
        has_ended = os.pidfd_open(self._child.pid)
        is_over = False
        while not is_over:
            reading = [has_ended, *self._outputs, *(() if self._typed else self._inputs)]
            pause_sec = None if watch is None or watch.is_listening() else _LISTEN_POLL_SEC
            readable, _, _ = select.select(reading, self._writable, [], pause_sec)
            is_over = has_ended in readable
            for descriptor in readable:
                if descriptor in self._outputs:
                    self._read(descriptor)
                elif descriptor in self._inputs:
                    self._take_input()
            self._type()
        os.close(has_ended)
        code = self._child.wait()
        for descriptor in list(self._outputs):
            while self._read(descriptor):
                pass
        return code if code >= 0 else 128 - code

    @property
    def _writable(self) -> list[int]:
        return [self._terminal] if self._terminal is not None and self._typed else []

    def _spawn(self, command: dict[str, Any]) -> "subprocess.Popen[bytes]":
        size = command["terminal"]
        terminal = {"TERM": "xterm"} if size else {}
        has_stderr = command["program"] is None
        ends = open_terminal(*size) if size else open_pipes(has_input=False, has_stderr=has_stderr)
        if size:
            [self._terminal], self._terminal_name = ends.outer, os.ttyname(ends.inner[0])
        self._outputs = dict(zip(ends.outer, ends.names, strict=True))
        for descriptor in self._outputs:
            os.set_blocking(descriptor, False)
        try:
            return subprocess.Popen(
                command["arguments"],
                cwd=PATHS.real_path(command["folder"]),
                env={**terminal, **os.environ, **command["environment"]},
                stdin=None if command["has_input"] and not size else ends.inner[0],
                stdout=ends.inner[1],
                stderr=ends.inner[2],
                start_new_session=True,
                preexec_fn=take_terminal if size else None,
            )
        finally:
            ends.close_inner()

    def _read(self, descriptor: int) -> bool:
        try:
            data = os.read(descriptor, _PIECE_BYTES)
        except BlockingIOError:
            return False
        except OSError:  # a terminal that no process has open
            data = b""
        if data:
            self._writer.write(self._outputs[descriptor], data)
        else:
            del self._outputs[descriptor]
            if descriptor != self._terminal:
                os.close(descriptor)
        return bool(data)

    def _take_input(self) -> None:
        self._typed = os.read(0, _PIECE_BYTES)
        if not self._typed:
            self._inputs.clear()

    def _type(self) -> None:
        if self._typed and self._terminal is not None:
            with suppress(OSError):
                self._typed = self._typed[os.write(self._terminal, self._typed) :]


def _close_input() -> None:
    nothing = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nothing, 0)
    os.close(nothing)


def _write_state(state: ProgramState) -> None:
    processes.write(STATE, "program", asdict(state))
