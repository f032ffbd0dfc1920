"""The sockets of a network namespace, from the kernel's `sock_diag`, which is faster than
reading /proc."""

import errno
import os
import socket
import struct
import threading
from collections.abc import Iterator

_DIAGNOSIS = 4
_BY_FAMILY, _DONE, _ERROR = 20, 3, 2
_DUMP = 0x301
_HEADER = struct.Struct("=IHHII")
_ATTRIBUTE = struct.Struct("=HH")
_ALL_STATES, _LISTENING = 0xFFFFFFFF, 1 << 10
_SHOW_UNIX_MEMORY = 0x20
_UNIX_MEMORY, _INET_MEMORY = 5, 7
_UNIX_FIELDS_BYTES, _INET_FIELDS_BYTES = 16, 72
_PORT_AT = 4
_FAMILIES = (socket.AF_INET, socket.AF_INET6)
_TCP, _UDP = 6, 17
_ANSWER_SEC = 2.0
_ANSWER_BYTES = 1 << 17


def open_diagnosis() -> socket.socket:
    """For the network of this process. Raises OSError."""
    if not hasattr(socket, "AF_NETLINK"):
        raise OSError(errno.EAFNOSUPPORT, "this system does not report its sockets")
    kind = socket.SOCK_RAW | socket.SOCK_CLOEXEC
    return socket.socket(socket.AF_NETLINK, kind, _DIAGNOSIS)


class SocketDiagnosis:
    """Uses a descriptor of `open_diagnosis`, from any network. Every method raises OSError."""

    def __init__(self, descriptor: int) -> None:
        self._channel = socket.socket(fileno=descriptor)
        self._channel.settimeout(_ANSWER_SEC)
        self._lock = threading.Lock()
        self._number = 0

    def close(self) -> None:
        self._channel.close()

    def listening_ports(self) -> list[int]:
        """The listening TCP ports, sorted."""
        answers = [each for family in _FAMILIES for each in self._inet(family, _TCP, _LISTENING)]
        return sorted({int.from_bytes(each[_PORT_AT : _PORT_AT + 2], "big") for each in answers})

    def unix_bytes(self) -> list[int]:
        """The bytes held by each local socket."""
        request = struct.pack(
            "=BBHIIIII", socket.AF_UNIX, 0, 0, _ALL_STATES, 0, _SHOW_UNIX_MEMORY, 0, 0
        )
        return [_held(each[_UNIX_FIELDS_BYTES:], _UNIX_MEMORY) for each in self._dump(request)]

    def inet_bytes(self) -> list[int]:
        """The bytes held by each connection. This scans those of the whole host."""
        return [
            _held(each[_INET_FIELDS_BYTES:], _INET_MEMORY)
            for family in _FAMILIES
            for protocol in (_TCP, _UDP)
            for each in self._inet(family, protocol, _ALL_STATES)
        ]

    def _inet(self, family: int, protocol: int, states: int) -> list[bytes]:
        shown = 1 << (_INET_MEMORY - 1)
        return self._dump(struct.pack("=BBBBI48x", family, protocol, shown, 0, states))

    def _dump(self, request: bytes) -> list[bytes]:
        """The kernel's record of each socket; none if it does not know that kind."""
        with self._lock:
            self._number += 1
            head = _HEADER.pack(_HEADER.size + len(request), _BY_FAMILY, _DUMP, self._number, 0)
            self._channel.send(head + request)
            answers: list[bytes] = []
            while True:
                for kind, number, content in _messages(self._channel.recv(_ANSWER_BYTES)):
                    if number != self._number:  # answers an abandoned request
                        continue
                    if kind == _ERROR and -_errno(content) != errno.ENOENT:
                        raise OSError(-_errno(content), os.strerror(-_errno(content)))
                    if kind in (_DONE, _ERROR):
                        return answers
                    answers.append(content)


def _messages(content: bytes) -> Iterator[tuple[int, int, bytes]]:
    """Each message with its kind and its request's number."""
    while len(content) >= _HEADER.size:
        length, kind, _, number, _ = _HEADER.unpack_from(content)
        yield kind, number, content[_HEADER.size : length]
        content = content[_aligned(max(length, _HEADER.size)) :]


def _errno(content: bytes) -> int:
    (number,) = struct.unpack_from("=i", content)
    return int(number)


def _held(attributes: bytes, wanted: int) -> int:
    """The bytes in the buffers of one socket, from its memory attribute."""
    while len(attributes) >= _ATTRIBUTE.size:
        length, kind = _ATTRIBUTE.unpack_from(attributes)
        if kind == wanted:
            received, _, sent, _, reserved, queued = struct.unpack_from("=6I", attributes, 4)
            return int(received + max(sent, queued) + reserved)
        attributes = attributes[_aligned(max(length, _ATTRIBUTE.size)) :]
    return 0


def _aligned(size: int) -> int:
    return (size + 3) & ~3
