"""The DNS server of a machine: each name that exists has one address, which means that name."""

import re
import struct
from dataclasses import dataclass

_HEADER = struct.Struct(">HHHHHH")
_IS_RESPONSE, _RECURSES, _WANTS_RECURSION, _OPERATION = 0x8000, 0x80, 0x100, 0x7800
_ADDRESS, _INTERNET = 1, 1
_NAME_OF_QUESTION = 0xC00C
_TTL_SEC = 60
_LABEL = re.compile(rb"[a-z0-9_-]+")
_LONGEST = 253

FAILED, UNKNOWN = 2, 3
"""SERVFAIL, NXDOMAIN."""


@dataclass(frozen=True, slots=True)
class Query:
    name: str
    wants_address: bool
    """Whether it asks for an IPv4 address: no name has anything else."""
    _number: int
    _flags: int
    _question: bytes

    def answer(self, address: bytes | None) -> bytes:
        """With None, the name exists, and has no record of that kind."""
        if address is None:
            return self._response(0, 0)
        record = struct.pack(
            ">HHHIH", _NAME_OF_QUESTION, _ADDRESS, _INTERNET, _TTL_SEC, len(address)
        )
        return self._response(0, 1) + record + address

    def failure(self, code: int) -> bytes:
        return self._response(code, 0)

    def _response(self, code: int, answers: int) -> bytes:
        flags = _IS_RESPONSE | _RECURSES | self._flags & _WANTS_RECURSION | code
        return _HEADER.pack(self._number, flags, 1, answers, 0, 0) + self._question


def parse_query(packet: bytes) -> Query | None:
    """None if it asks for no name that can be connected to: it gets no answer."""
    if len(packet) < _HEADER.size:
        return None
    number, flags, questions, *_ = _HEADER.unpack_from(packet)
    if flags & (_IS_RESPONSE | _OPERATION) or questions != 1:
        return None
    labels, at = [], _HEADER.size
    while at < len(packet) and (length := packet[at]):
        labels.append(packet[at + 1 : at + 1 + length].lower())
        at += 1 + length
    name = b".".join(labels).decode("latin-1")
    question = packet[_HEADER.size : at + 5]
    if len(question) != at + 5 - _HEADER.size or len(name) > _LONGEST:
        return None
    if not labels or not all(map(_LABEL.fullmatch, labels)):
        return None
    kind, family = struct.unpack_from(">HH", packet, at + 1)
    wants_address = (kind, family) == (_ADDRESS, _INTERNET)
    return Query(name, wants_address, number, flags, question)
