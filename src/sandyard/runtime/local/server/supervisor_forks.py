"""Starts supervisors through a fork server: one for this process, begun when it is first needed."""

import atexit
import os
import socket
import sys
import threading
from contextlib import suppress
from pathlib import Path

from sandyard.runtime.local.host import processes
from sandyard.runtime.local.ipc.packets import packet_pair, receive_now, send_now
from sandyard.runtime.local.server.spawn_supervisor import SOURCES, open_log

_MODULE = "sandyard.runtime.local.supervisor.fork_server"
_CHANNEL = 3
_NAME_BYTES = 1024


class SupervisorForks:
    """Saves loading a supervisor's modules, which takes longer than the rest of a start."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._channel: socket.socket | None = None
        self._pid = 0
        self._owner = 0

    def start(self, folder: Path, lock: int, start_pipe: int) -> bool:
        """Whether a supervisor was forked, with the lock and the end of a pipe. False: certainly
        not, and not tried. Raises OSError if that is unknown: the lock then shows whether one
        exists."""
        if not processes.HAS_PROC:
            return False
        log = open_log(folder)
        try:
            with self._lock:
                return self._ask(folder, (log, lock, start_pipe))
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

    def _ask(self, folder: Path, descriptors: tuple[int, ...]) -> bool:
        channel = self._connected()
        try:
            send_now(channel, {"folder": str(folder)}, descriptors=descriptors)
        except (BrokenPipeError, ConnectionResetError):  # it was killed; the next call has another
            self.close()
            return False
        if receive_now(channel) is None:
            self.close()
            raise OSError("the fork server ended during the call")
        return True

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
        {"PATH": os.environ.get("PATH", os.defpath), "PYTHONPATH": str(SOURCES)},
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
