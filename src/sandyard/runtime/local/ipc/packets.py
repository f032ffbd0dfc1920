"""Messages between server, supervisor and agent: one packet each, with descriptors if need be.

A packet is a line of JSON followed by raw bytes. The sockets preserve packet boundaries, so no
framing is needed. Readers trust nothing: a malformed packet is an OSError.
"""

import array
import json
import os
import socket
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

SOCKET = "session"
"""The supervisor's socket, in the run's folder."""
MOST_BYTES = 96 * 1024
"""The most raw bytes in one packet."""
END = b"\x04"
"""The last byte of complete content in a pipe: the pipe of a killed writer ends like any other."""
_LARGEST_PACKET = 160 * 1024
_BUFFER_BYTES = 512 * 1024
_MOST_DESCRIPTORS = 8


@dataclass(frozen=True, slots=True)
class Packet:
    message: dict[str, Any]
    data: bytes = b""
    descriptors: tuple[int, ...] = ()

    def close(self) -> None:
        for descriptor in self.descriptors:
            os.close(descriptor)


def packet_socket() -> socket.socket:
    made = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    made.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, _BUFFER_BYTES)
    return made


def packet_pair() -> tuple[socket.socket, socket.socket]:
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    for end in (ours, theirs):
        end.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, _BUFFER_BYTES)
    return ours, theirs


def send_now(
    channel: socket.socket,
    message: dict[str, Any],
    data: bytes = b"",
    descriptors: Sequence[int] = (),
) -> None:
    socket.send_fds(channel, [json.dumps(message).encode(), b"\n", data], list(descriptors))


def receive_now(channel: socket.socket) -> Packet | None:
    """The next packet; None if the other side has closed."""
    content, ancillary, flags, _ = channel.recvmsg(
        _LARGEST_PACKET, socket.CMSG_SPACE(_MOST_DESCRIPTORS * 4), socket.MSG_CMSG_CLOEXEC
    )
    descriptors = _descriptors(ancillary)
    if not content:
        return None
    head, _, data = content.partition(b"\n")
    try:
        message = json.loads(head)
    except (ValueError, RecursionError):
        message = None
    if flags & (socket.MSG_TRUNC | socket.MSG_CTRUNC) or not isinstance(message, dict):
        Packet({}, descriptors=descriptors).close()
        raise OSError("this is not a valid packet")
    return Packet(message, data, descriptors)


async def send(
    channel: socket.socket,
    message: dict[str, Any],
    data: bytes = b"",
    descriptors: Sequence[int] = (),
) -> None:
    while True:
        try:
            return send_now(channel, message, data, descriptors)
        except BlockingIOError:
            await writable(channel.fileno())


async def receive(channel: socket.socket) -> Packet | None:
    while True:
        try:
            return receive_now(channel)
        except BlockingIOError:
            await readable(channel.fileno())


def connect(path: str) -> socket.socket:
    """A connection to the packet socket at this path. Raises OSError."""
    channel = packet_socket()
    try:
        channel.settimeout(0)
        channel.connect(path)
    except BaseException:
        channel.close()
        raise
    return channel


async def readable(descriptor: int) -> None:
    """Return when it is readable, or at its end."""
    import asyncio  # the agents do not wait this way, and in a gVisor machine it loads slowly

    loop = asyncio.get_running_loop()
    await _once(descriptor, loop.add_reader, loop.remove_reader)


async def writable(descriptor: int) -> None:
    import asyncio

    loop = asyncio.get_running_loop()
    await _once(descriptor, loop.add_writer, loop.remove_writer)


async def _once(descriptor: int, add: Callable[..., Any], remove: Callable[[int], Any]) -> None:
    import asyncio

    ready = asyncio.Event()
    add(descriptor, ready.set)
    try:
        await ready.wait()
    finally:
        remove(descriptor)


def _descriptors(ancillary: list[tuple[int, int, bytes]]) -> tuple[int, ...]:
    found = array.array("i")
    for level, kind, content in ancillary:
        if level == socket.SOL_SOCKET and kind == socket.SCM_RIGHTS:
            found.frombytes(content[: len(content) - len(content) % found.itemsize])
    return tuple(found)


@dataclass(frozen=True, slots=True)
class Answer:
    result: Any = None
    data: bytes = b""
    descriptors: tuple[int, ...] = ()
    then: Callable[[], None] | None = None
    """Work to do after the answer was sent, in an operation that may take long."""
