"""The sockets of a network namespace, from the kernel's `sock_diag`, which is faster than
reading /proc."""

import errno
import os
import socket
import struct
import threading

from sandyard.runtime.local.host.netlink import (
    ERROR,
    attributes,
    error_number,
    messages,
    request,
)

_DIAGNOSIS = 4
_BY_FAMILY, _DONE = 20, 3
_DUMP = 0x301
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
        wanted = struct.pack(
            "=BBHIIIII", socket.AF_UNIX, 0, 0, _ALL_STATES, 0, _SHOW_UNIX_MEMORY, 0, 0
        )
        return [_held(each[_UNIX_FIELDS_BYTES:], _UNIX_MEMORY) for each in self._dump(wanted)]

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

    def _dump(self, wanted: bytes) -> list[bytes]:
        """The kernel's record of each socket; none if it does not know that kind."""
        with self._lock:
            self._number += 1
            self._channel.send(request(_BY_FAMILY, wanted, flags=_DUMP, sequence=self._number))
            answers: list[bytes] = []
            while True:
                for kind, number, content in messages(self._channel.recv(_ANSWER_BYTES)):
                    if number != self._number:  # answers an abandoned request
                        continue
                    if kind == ERROR and (code := error_number(content)) != errno.ENOENT:
                        raise OSError(code, os.strerror(code))
                    if kind in (_DONE, ERROR):
                        return answers
                    answers.append(content)


def _held(found: bytes, wanted: int) -> int:
    """The bytes in the buffers of one socket, from its memory attribute."""
    for kind, content in attributes(found):
        if kind == wanted:
            received, _, sent, _, reserved, queued = struct.unpack_from("=6I", content)
            return int(received + max(sent, queued) + reserved)
    return 0
