"""The channel between the two processes: each may open connections to the other.

A connection is a pair of sockets, one of which is sent through the channel. So there is no address
that a third process could connect to.
"""

import asyncio
import os
import socket
import struct
from collections.abc import Callable
from contextlib import suppress

from sandyard.entrypoints.server.bulkhead.frames import Connection

CALL, ENDED = b"call", b""
"""A connection is opened; the other process has ended, also by a signal."""
UP, DOWN = b"up", b"down"
"""The tenants' process serves; it has died, and is started again."""
DRAIN, STOP, HANG_UP = b"drain", b"stop", b"hang up"
"""The tenants' process shall answer what waits; end; reread its secrets."""
_WORD_BYTES = 16
_INT = struct.Struct("i")

OnWord = Callable[[bytes], None]
OnCall = Callable[[socket.socket], None]


def new_pair() -> tuple[socket.socket, socket.socket]:
    return socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)


async def opened(end: socket.socket) -> Connection:
    loop = asyncio.get_running_loop()
    end.settimeout(0)
    _, connection = await loop.create_unix_connection(Connection, sock=end)
    return connection


class Channel:
    """One process's end."""

    def __init__(self, end: socket.socket) -> None:
        end.settimeout(0)
        self._end = end
        self._turn = asyncio.Lock()

    async def connect(self) -> Connection:
        """A connection to the other process. Raises OSError."""
        async with self._turn:  # who waits for a turn has no descriptors yet
            ours, theirs = socket.socketpair()
            try:
                with theirs:
                    await self._send(CALL, theirs.fileno())
            except BaseException:
                ours.close()
                raise
        return await opened(ours)

    async def tell(self, word: bytes) -> None:
        async with self._turn:
            await self._send(word)

    def tell_now(self, word: bytes) -> None:
        """Without an effect if the other process has fallen behind, or has ended."""
        with suppress(OSError):
            self._end.send(word)

    async def _send(self, word: bytes, *descriptors: int) -> None:
        while True:
            try:
                socket.send_fds(self._end, [word], descriptors)
            except BlockingIOError:
                await self._is_writable()
            else:
                return

    async def _is_writable(self) -> None:
        loop, ready = asyncio.get_running_loop(), asyncio.Event()
        loop.add_writer(self._end, ready.set)
        try:
            await ready.wait()
        finally:
            loop.remove_writer(self._end)

    def listen(self, *, on_call: OnCall, on_word: OnWord) -> None:
        """`on_word` gets ENDED at last."""

        def receive() -> None:
            with suppress(BlockingIOError):
                while (packet := receive_now(self._end))[0] != ENDED:
                    word, descriptors = packet
                    if word != CALL:
                        on_word(word)
                    for each in descriptors:
                        on_call(socket.socket(fileno=each))
                asyncio.get_running_loop().remove_reader(self._end)
                on_word(ENDED)

        asyncio.get_running_loop().add_reader(self._end, receive)


def receive_now(end: socket.socket) -> tuple[bytes, list[int]]:
    """The next packet; raises BlockingIOError if there is none."""
    flags, space = socket.MSG_DONTWAIT | socket.MSG_CMSG_CLOEXEC, socket.CMSG_SPACE(_INT.size)
    try:
        word, ancillary, _, _ = end.recvmsg(_WORD_BYTES, space, flags)
    except ConnectionResetError:
        return ENDED, []
    passed = [data for _, kind, data in ancillary if kind == socket.SCM_RIGHTS]
    return word, [_INT.unpack(data)[0] for data in passed if len(data) == _INT.size]


def drop_calls(end: socket.socket) -> None:
    """Close the connections that a process which died has not accepted."""
    with suppress(BlockingIOError):
        while (packet := receive_now(end))[0] != ENDED:
            for each in packet[1]:
                os.close(each)
