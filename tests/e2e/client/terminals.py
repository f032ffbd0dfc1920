"""The command line as a person or a script meets it: in this process, as another, on a terminal."""

import fcntl
import os
import pty
import select
import struct
import subprocess
import sys
import termios
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest

from sandyard.entrypoints.cli import run
from tests.support.servers.fork_server import ForkedProcess
from tests.support.servers.processes import clean_environment

PATIENCE_SEC = 60


@dataclass(frozen=True, slots=True)
class Shown:
    code: int
    out: str
    err: str


class CommandLine:
    """`sandyard` with these settings in its environment."""

    def __init__(
        self,
        environment: Mapping[str, str],
        capsys: pytest.CaptureFixture[str],
        monkeypatch: pytest.MonkeyPatch,
    ) -> None:
        self.environment = dict(environment)
        self._capsys = capsys
        for name, value in environment.items():
            monkeypatch.setenv(name, value)

    def __call__(self, *arguments: str, code: int = 0) -> Shown:
        """In this process, to save its start; the exit code must be this one."""
        self._capsys.readouterr()
        try:
            ended = run(arguments)
        except SystemExit as end:
            ended = int(end.code or 0)
        shown = Shown(ended, *self._capsys.readouterr())
        assert ended == code, shown
        return shown

    @contextmanager
    def started(self, *arguments: str, **more: str) -> Iterator["subprocess.Popen[str]"]:
        """As a process of its own, which is ended with the block."""
        process = ForkedProcess(
            [sys.executable, "-m", "sandyard", *arguments],
            env=clean_environment(self.environment | more),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        with process:
            try:
                yield process
            finally:
                if process.poll() is None:
                    process.kill()

    @contextmanager
    def on_terminal(self, *arguments: str) -> Iterator["Screen"]:
        """As a process of its own, whose standard streams are a terminal of 90 columns."""
        ours, theirs = pty.openpty()
        fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 25, 90, 0, 0))
        process = subprocess.Popen(
            [sys.executable, "-m", "sandyard", *arguments],
            env=clean_environment(self.environment | {"TERM": "xterm"}),
            stdin=theirs,
            stdout=theirs,
            stderr=theirs,
            start_new_session=True,
        )
        os.close(theirs)
        try:
            yield Screen(process, ours)
        finally:
            if process.poll() is None:
                process.kill()
            process.wait(PATIENCE_SEC)
            os.close(ours)


class Screen:
    def __init__(self, process: "subprocess.Popen[bytes]", terminal: int) -> None:
        self.process = process
        self._terminal = terminal
        self.text = ""

    def type(self, keys: str) -> None:
        os.write(self._terminal, keys.encode())

    def until(self, words: str) -> None:
        """Read until these are there."""
        deadline = time.monotonic() + PATIENCE_SEC
        while words not in self.text:
            assert time.monotonic() < deadline, self.text
            assert self._read(), self.text

    def to_end(self) -> int:
        """Read all of it; the exit code."""
        while self._read():
            pass
        return self.process.wait(PATIENCE_SEC)

    def _read(self) -> bool:
        ready, _, _ = select.select([self._terminal], [], [], PATIENCE_SEC)
        try:
            piece = os.read(self._terminal, 1 << 16) if ready else b""
        except OSError:  # its other end is closed
            return False
        self.text += piece.decode(errors="replace")
        return bool(piece)


def saved(path: Path, text: str) -> Path:
    path.write_text(text)
    return path
