"""Netlink messages: requests to the kernel about networks, and its answers."""

import os
import socket
import struct
from collections.abc import Iterator

_HEADER = struct.Struct("=IHHII")
_ATTRIBUTE = struct.Struct("=HH")
_REQUEST, _CONFIRMED, _CREATE = 0x1, 0x4, 0x400
ERROR = 2
_NESTED = 0x8000
_ANSWER_BYTES = 1 << 16
_ANSWER_SEC = 2.0


def attribute(kind: int, content: bytes) -> bytes:
    head = _ATTRIBUTE.pack(_ATTRIBUTE.size + len(content), kind)
    return head + content + bytes(-len(content) % 4)


def attributes_in(kind: int, *attributes: bytes) -> bytes:
    """An attribute that consists of others."""
    return attribute(kind | _NESTED, b"".join(attributes))


def number(value: int) -> bytes:
    return struct.pack("=I", value)


def request(kind: int, *content: bytes, flags: int = _REQUEST, sequence: int = 0) -> bytes:
    body = b"".join(content)
    return _HEADER.pack(_HEADER.size + len(body), kind, flags, sequence, 0) + body


def change(kind: int, *content: bytes, flags: int = 0) -> bytes:
    """A request to create or set something, which the kernel confirms."""
    return request(kind, *content, flags=_REQUEST | _CONFIRMED | _CREATE | flags)


def make_changes(protocol: int, *requests: bytes) -> None:
    """Raises OSError if one of them is refused."""
    with socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, protocol) as channel:
        channel.settimeout(_ANSWER_SEC)
        channel.send(b"".join(requests))
        for each in requests:
            if _HEADER.unpack_from(each)[2] & _CONFIRMED:
                for kind, _, content in messages(channel.recv(_ANSWER_BYTES)):
                    if kind == ERROR and error_number(content):
                        raise OSError(error_number(content), os.strerror(error_number(content)))


def messages(content: bytes) -> Iterator[tuple[int, int, bytes]]:
    """Each message with its kind and its request's sequence."""
    while len(content) >= _HEADER.size:
        length, kind, _, sequence, _ = _HEADER.unpack_from(content)
        yield kind, sequence, content[_HEADER.size : length]
        content = content[_aligned(max(length, _HEADER.size)) :]


def attributes(content: bytes) -> Iterator[tuple[int, bytes]]:
    while len(content) >= _ATTRIBUTE.size:
        length, kind = _ATTRIBUTE.unpack_from(content)
        yield kind, content[_ATTRIBUTE.size : length]
        content = content[_aligned(max(length, _ATTRIBUTE.size)) :]


def error_number(content: bytes) -> int:
    (found,) = struct.unpack_from("=i", content)
    return -int(found)


def _aligned(size: int) -> int:
    return (size + 3) & ~3
