"""Inside the sandbox: relays connections to the program, and reports its state.

A copy runs in isolation, so this knows only the standard library, and of that only what is
imported in a moment: the program waits for the same processor. It trusts nobody: the program
beside it may do to it what it likes, and so harm itself.
"""

from __future__ import annotations

import errno
import os
import selectors
import signal
import socket
from contextlib import suppress
from typing import Any

_CHUNK_BYTES = 64 * 1024
_LISTENING = b"0A"
_POLL_SEC = 0.01
_CONNECTING = (0, errno.EINPROGRESS)


class HalfConnection:
    """One direction of a connection, with at most one chunk on its way."""

    def __init__(self, source: socket.socket, sink: socket.socket) -> None:
        self.source = source
        self.sink = sink
        self._chunk = b""
        self._is_over = False

    @property
    def wants(self) -> tuple[socket.socket, int] | None:
        """What it waits for; None when it is done."""
        if self._chunk:
            return self.sink, selectors.EVENT_WRITE
        return None if self._is_over else (self.source, selectors.EVENT_READ)

    def move(self) -> None:
        """Go as far as it goes without waiting. OSError: the connection is broken."""
        try:
            if not self._chunk and not self._is_over:
                self._chunk = self.source.recv(_CHUNK_BYTES)
                self._is_over = not self._chunk
            if self._chunk:
                self._chunk = self._chunk[self.sink.send(self._chunk) :]
        except BlockingIOError:
            return
        if self._is_over:
            with suppress(OSError):
                self.sink.shutdown(socket.SHUT_WR)


class Connection:
    def __init__(self, near: socket.socket, far: socket.socket) -> None:
        self.sockets = (near, far)
        self._halves = (HalfConnection(near, far), HalfConnection(far, near))

    def wants(self) -> dict[socket.socket, int]:
        wanted: dict[socket.socket, int] = {}
        for half in self._halves:
            if half.wants is not None:
                peer, event = half.wants
                wanted[peer] = wanted.get(peer, 0) | event
        return wanted

    def move(self) -> bool:
        """Whether it goes on."""
        try:
            for half in self._halves:
                if half.wants is not None:
                    half.move()
        except OSError:
            return False
        return any(half.wants is not None for half in self._halves)


class Relay:
    """Waits on everything at once: connections, the program's end, the supervisor's messages."""

    def __init__(self, job: dict[str, Any], control: socket.socket, pid: int) -> None:
        self._port: int = job["port"]
        self._free_slots: int = job["connections"]
        self._control = control
        self._pid = pid
        self._listens = False
        self._code: int | None = None
        self._selector = selectors.DefaultSelector()
        self._listener = socket.socket(fileno=job["listener"])
        self._wakeup, writer = socket.socketpair()
        for waited in (self._control, self._listener, self._wakeup, writer):
            waited.settimeout(0)
        self._selector.register(self._control, selectors.EVENT_READ)
        self._selector.register(self._wakeup, selectors.EVENT_READ)
        self._wakeup_writer = writer
        signal.signal(signal.SIGCHLD, lambda *_: None)
        signal.set_wakeup_fd(writer.fileno(), warn_on_full_buffer=False)

    def run(self) -> int:
        """Return with the program's exit code."""
        while True:
            self._reap()
            if self._code is not None:
                self._send(f"exited {self._code}\n")
                return self._code
            self._announce()
            for key, _ in self._selector.select(None if self._listens else _POLL_SEC):
                self._handle(key)

    def _handle(self, key: selectors.SelectorKey) -> None:
        if key.fileobj is self._control:
            self._handle_control()
        elif key.fileobj is self._wakeup:
            self._wakeup.recv(_CHUNK_BYTES)
        elif key.fileobj is self._listener:
            self._accept()
        else:
            self._move(key.data)

    def _announce(self) -> None:
        if not self._listens and listens(self._port):
            self._listens = True
            self._selector.register(self._listener, selectors.EVENT_READ)
            self._send("listening\n")

    def _handle_control(self) -> None:
        """SIGTERM the program on a message; SIGKILL it when the supervisor is gone."""
        with suppress(BlockingIOError):
            if self._control.recv(_CHUNK_BYTES):
                self._signal(signal.SIGTERM)
            else:
                self._signal(signal.SIGKILL)
                self._selector.unregister(self._control)

    def _accept(self) -> None:
        with suppress(OSError):
            near, _ = self._listener.accept()
            near.settimeout(0)
            far = self._connect()
            if far is None:
                near.close()
                return
            self._free_slots -= 1
            if self._free_slots == 0:
                self._selector.unregister(self._listener)
            self._wait(Connection(near, far))

    def _connect(self) -> socket.socket | None:
        for family, host in ((socket.AF_INET, "127.0.0.1"), (socket.AF_INET6, "::1")):
            far = socket.socket(family)
            far.settimeout(0)
            if far.connect_ex((host, self._port)) in _CONNECTING:
                return far
            far.close()
        return None

    def _move(self, connection: Connection) -> None:
        if connection.move():
            self._wait(connection)
            return
        for peer in connection.sockets:
            self._watch(peer, 0, connection)
            peer.close()
        self._free_slots += 1
        if self._free_slots == 1:
            self._selector.register(self._listener, selectors.EVENT_READ)

    def _wait(self, connection: Connection) -> None:
        wanted = connection.wants()
        for peer in connection.sockets:
            self._watch(peer, wanted.get(peer, 0), connection)

    def _watch(self, peer: socket.socket, events: int, connection: Connection) -> None:
        if peer.fileno() < 0:
            return
        is_known = peer.fileno() in self._selector.get_map()
        if events and is_known:
            self._selector.modify(peer, events, connection)
        elif events:
            self._selector.register(peer, events, connection)
        elif is_known:
            self._selector.unregister(peer)

    def _reap(self) -> None:
        with suppress(ChildProcessError):
            pid, status = os.waitpid(self._pid, os.WNOHANG)
            if pid:
                code = os.waitstatus_to_exitcode(status)
                self._code = code if code >= 0 else 128 - code

    def _signal(self, number: int) -> None:
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(self._pid, number)

    def _send(self, line: str) -> None:
        with suppress(OSError):
            self._control.send(line.encode())


def listens(port: int) -> bool:
    """Whether anything in this network namespace listens on the port."""
    if not os.access("/proc/net/tcp", os.R_OK):
        with socket.socket() as probe:
            return probe.connect_ex(("127.0.0.1", port)) == 0
    return any(_lists_port(table, port) for table in ("/proc/net/tcp", "/proc/net/tcp6"))


def _lists_port(table: str, port: int) -> bool:
    try:
        with open(table, "rb") as rows:  # noqa: PTH123 - pathlib costs ten milliseconds
            words = (row.split() for row in list(rows)[1:])
            return any(
                word[3] == _LISTENING and int(word[1].rsplit(b":", 1)[1], 16) == port
                for word in words
            )
    except FileNotFoundError:  # a machine without IPv6
        return False
