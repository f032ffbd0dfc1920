"""What is copied between the inside of a machine with its own kernel (gVisor) and sockets that the
supervisor sent: the streams of processes, and connections.

Before a checkpoint all are detached, because the image of a machine can't have sockets of the host.
What a process has written by then is sent when its streams are attached to new sockets.
"""

import os
import select
import socket
import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any

_CHUNK = 64 * 1024
_DRAIN_SEC = 0.002
_DETACH_SEC = 5
_AGAIN_MS = 100


def in_thread(work: Callable[..., None], *arguments: Any) -> threading.Thread:
    thread = threading.Thread(target=work, args=arguments, daemon=True)
    thread.start()
    return thread


class Stream(ABC):
    """One direction of a process's pipe or terminal, which it closes at its end."""

    def __init__(self, inner: int) -> None:
        self._inner = inner
        os.set_blocking(inner, False)
        self._outer: socket.socket | None = None
        self._thread: threading.Thread | None = None
        self._is_over = False

    def attach(self, outer: socket.socket) -> None:
        if self._is_over:
            outer.close()
            return
        self._outer = outer
        self._thread = in_thread(self._run, outer)

    def let_go(self) -> socket.socket | None:
        """Its socket, whose end is not the stream's from now on."""
        outer, self._outer = self._outer, None
        return outer

    def until_detached(self) -> None:
        if self._thread is not None:
            self._thread.join(_DETACH_SEC)

    def drain(self) -> None:  # noqa: B027 - input has nothing to send
        """Return when all output that was written by now has been sent."""

    @property
    def _is_detached(self) -> bool:
        return self._outer is None

    def _run(self, outer: socket.socket) -> None:
        with outer:
            with suppress(OSError):
                self._copy(outer)
            if not self._is_detached:
                self._is_over = True
                os.close(self._inner)
                _shut_down(outer)

    @abstractmethod
    def _copy(self, outer: socket.socket) -> None:
        """Return at the end of the stream, or when it was detached. Raises OSError."""


def detach(streams: Sequence[Stream]) -> None:
    """Return when their sockets are closed; those of a terminal have one in common."""
    outers = [each.let_go() for each in streams]
    for outer in outers:
        if outer is not None:
            _shut_down(outer)
    for each in streams:
        each.until_detached()


class Input(Stream):
    """What was sent but not read by the process is lost when it is detached."""

    def _copy(self, outer: socket.socket) -> None:
        waiting = select.poll()
        waiting.register(self._inner, select.POLLOUT)
        while data := outer.recv(_CHUNK):
            while data:
                if waiting.poll(_AGAIN_MS):
                    data = data[os.write(self._inner, data) :]
                elif self._is_detached:
                    return


class Output(Stream):
    def __init__(self, inner: int) -> None:
        super().__init__(inner)
        self._unsent = b""
        self._copying = threading.Lock()

    def drain(self) -> None:
        waiting = select.poll()
        while True:
            with self._copying:
                if self._is_over:
                    return
                waiting.register(self._inner, select.POLLIN)
                if not self._unsent and not waiting.poll(0):
                    return
            time.sleep(_DRAIN_SEC)

    def _copy(self, outer: socket.socket) -> None:
        waiting = select.poll()
        waiting.register(self._inner, select.POLLIN)
        waiting.register(outer, 0)  # tells that it was shut down
        while self._unsent or outer.fileno() not in dict(waiting.poll()):
            with self._copying, suppress(BlockingIOError):
                self._unsent = self._unsent or os.read(self._inner, _CHUNK)
                if not self._unsent:
                    break
                while self._unsent:
                    self._unsent = self._unsent[outer.send(self._unsent) :]


class Connection:
    """Two sockets, each of which gets what the other receives, until both have ended."""

    def __init__(self, made: socket.socket, outer: socket.socket) -> None:
        self._ends = made, outer
        self._thread = in_thread(self._run)

    @property
    def is_over(self) -> bool:
        return not self._thread.is_alive()

    def close(self) -> None:
        for end in self._ends:
            _shut_down(end)
        self._thread.join(_DETACH_SEC)

    def _run(self) -> None:
        made, outer = self._ends
        with made, outer:
            back = in_thread(_pass, outer, made)
            _pass(made, outer)
            back.join()


def _pass(source: socket.socket, target: socket.socket) -> None:
    with suppress(OSError):
        with suppress(ConnectionError):
            while data := source.recv(_CHUNK):
                target.sendall(data)
        target.shutdown(socket.SHUT_WR)


def _shut_down(end: socket.socket) -> None:
    with suppress(OSError):
        end.shutdown(socket.SHUT_RDWR)
