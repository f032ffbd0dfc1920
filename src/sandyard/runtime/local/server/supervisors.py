"""Starts supervisors through a fork server, and ends what a killed supervisor left running."""

import atexit
import os
import socket
import sys
import threading
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import sandyard
from sandyard.runtime.local.host import processes
from sandyard.runtime.local.ipc.packets import packet_pair, receive_now, send_now
from sandyard.runtime.local.jail.isolation import program_path

SOURCES = Path(sandyard.__file__).parent.parent
_MODULE = "sandyard.runtime.local.supervisor.fork_server"
_CHANNEL = 3
_NAME_BYTES = 1024


def kill_orphans(folder: Path) -> None:
    """Kill the processes that work in this folder of a run, and their descendants.

    In a jail the kernel has done that; without one the relay has, unless it was killed too. A
    process that was just being started may be left in both cases: bubblewrap, killed with its
    parent, leaves a child that waits for it forever, and with it the mounts of the supervisor. A
    kernel of its own, gVisor's, does not end with its supervisor either.
    """
    for pid in _working_in(folder):
        processes.kill_descendants(pid)
        processes.kill([pid])


def _working_in(folder: Path) -> Iterator[int]:
    kernel = f"--root={folder}/".encode()
    for process in Path("/proc").iterdir():
        if process.name.isdigit():
            try:
                here = (process / "cwd").readlink()
                words = (process / "cmdline").read_bytes().split(b"\0")
            except OSError:
                continue
            if here.is_relative_to(folder) or any(each.startswith(kernel) for each in words):
                yield int(process.name)


class SupervisorForks:
    """One fork server for this process, begun when it is first needed: it saves loading a
    supervisor's modules, which takes longer than the rest of a start."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._channel: socket.socket | None = None
        self._pid = 0
        self._owner = 0

    def start(self, folder: Path, lock: int, pipe: int, *, is_closing: bool = False) -> None:
        """Fork a supervisor that has the lock and the end of a pipe; if `is_closing`, one that
        records the end of a machine, and has the pipe until it ends. Raises OSError if it is
        unknown whether there is one: the lock then shows it."""
        log = os.open(folder / "supervisor.log", os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        request = {"folder": str(folder), "is_closing": is_closing}
        try:
            with self._lock:
                self._send(request, (log, lock, pipe))
        finally:
            os.close(log)

    def close(self) -> None:
        """Let it end; the supervisors that it forked continue."""
        if self._channel is None:
            return
        self._channel.close()
        self._channel = None
        if self._owner == os.getpid():
            with suppress(ChildProcessError):
                os.waitpid(self._pid, 0)

    def _send(self, request: dict[str, Any], descriptors: tuple[int, ...]) -> None:
        try:
            send_now(self._connected(), request, descriptors=descriptors)
        except (BrokenPipeError, ConnectionResetError):  # it was killed before this request
            self.close()
            send_now(self._connected(), request, descriptors=descriptors)
        if receive_now(self._connected()) is None:
            self.close()
            raise OSError("the fork server ended during the call")

    def _connected(self) -> socket.socket:
        if self._channel is None or self._owner != os.getpid():
            self.close()
            self._channel, theirs = packet_pair()
            with theirs:
                self._pid = _spawn(theirs.fileno())
            self._owner = os.getpid()
        return self._channel


def _spawn(channel: int) -> int:
    """It inherits the channel and nothing else of ours."""
    return os.posix_spawn(
        sys.executable,
        [sys.executable, "-S", "-m", _MODULE, "-" * _NAME_BYTES],
        {"PATH": program_path(), "PYTHONPATH": str(SOURCES)},
        file_actions=[
            (os.POSIX_SPAWN_DUP2, channel, _CHANNEL),
            (os.POSIX_SPAWN_OPEN, 0, os.devnull, os.O_RDONLY, 0),
            (os.POSIX_SPAWN_DUP2, 2, 1),
        ],
        setsid=True,
        setsigmask=[],
    )


FORKS = SupervisorForks()
atexit.register(FORKS.close)
