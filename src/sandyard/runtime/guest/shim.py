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
from typing import Any

from . import EXIT, PATHS, PROCESSES, RefusedError, processes
from .channels import open_pipes, open_terminal, take_terminal
from .processes import Writer

_PIECE_BYTES = 65536


def start(process_id: str) -> Iterator[dict[str, Any]]:
    """Start the process of the uploaded `command.json` and yield it; nothing more is yielded until
    it has ended."""
    folder = os.path.join(PROCESSES, process_id)
    with open(os.path.join(folder, "command.json"), encoding="utf-8") as file:
        command = json.load(file)
    try:
        shim = _Shim(folder, command)
    except (OSError, ValueError, IndexError) as error:
        shutil.rmtree(folder)
        raise RefusedError("COMMAND_REFUSED", str(error)) from error
    record = shim.describe(process_id, command)
    processes.write(folder, "process", record)
    processes.drop_oldest()
    yield record
    code = shim.stay()
    if command["is_program"]:
        _note_exit(code)
    processes.write(folder, "ended", {"exit_code": code, "ended_at": time.time()})


class _Shim:
    def __init__(self, folder: str, command: dict[str, Any]) -> None:
        signal.signal(signal.SIGTERM, lambda *_: None)  # the child is ended with the machine
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

    def stay(self) -> int:
        """Return the exit code when the process has ended, even if others hold its output open."""
        ended = os.pidfd_open(self._child.pid)
        is_over = False
        while not is_over:
            reading = [ended, *self._outputs, *(() if self._typed else self._inputs)]
            readable, _, _ = select.select(reading, self._writable, [])
            is_over = ended in readable
            for descriptor in readable:
                if descriptor in self._outputs:
                    self._read(descriptor)
                elif descriptor in self._inputs:
                    self._take_input()
            self._type()
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
        has_stderr = not command["is_program"]
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


def _note_exit(code: int) -> None:
    with open(f"{EXIT}.new", "w", encoding="ascii") as file:
        file.write(str(code))
    os.replace(f"{EXIT}.new", EXIT)
