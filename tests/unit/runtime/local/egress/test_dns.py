"""DNS queries, as programs and attackers write them."""

import struct

import pytest

from sandyard.runtime.local.egress.dns import UNKNOWN, parse_query


def query(name: bytes, kind: int = 1, *, flags: int = 0x100, questions: int = 1) -> bytes:
    labels = b"".join(bytes([len(each)]) + each for each in name.split(b".")) + b"\0"
    head = struct.pack(">HHHHHH", 77, flags, questions, 0, 0, 1)
    return head + labels + struct.pack(">HH", kind, 1) + b"\0\0)\x10\0\0\0\0\0\0\0"


def test_a_name_has_one_address() -> None:
    asked = parse_query(query(b"Api.Example.org"))
    assert asked is not None
    assert (asked.name, asked.wants_address) == ("api.example.org", True)
    answer = asked.answer(b"\xc6\x12\x01\x02")
    assert struct.unpack_from(">HHHHHH", answer) == (77, 0x8180, 1, 1, 0, 0)
    assert answer[12:33] == b"\x03Api\x07Example\x03org\0\0\1\0\1", "the question as it was"
    assert answer.endswith(b"\xc0\x0c\0\1\0\1\0\0\0<\0\4\xc6\x12\x01\x02")


@pytest.mark.parametrize("kind", [28, 15, 16, 33, 65])
def test_it_has_nothing_else(kind: int) -> None:
    asked = parse_query(query(b"example.org", kind))
    assert asked is not None
    assert not asked.wants_address
    assert struct.unpack_from(">HHHHHH", asked.answer(None)) == (77, 0x8180, 1, 0, 0, 0)


def test_what_does_not_exist_is_said_so() -> None:
    asked = parse_query(query(b"example.org"))
    assert asked is not None
    assert struct.unpack_from(">H", asked.failure(UNKNOWN), 2) == (0x8183,)


@pytest.mark.parametrize(
    "packet",
    [
        *(b"", b"\0" * 11, query(b"a.test")[:-16], query(b"a.test", flags=0x8180)),
        *(query(b"a.test", flags=0x2800), query(b"a.test", questions=2), query(b"a.test")[:15]),
        *(query(b"a\0b.test"), query(b"a b.test"), query(b"a/b.test")),
        query(b".".join([b"x" * 60] * 5)),
        struct.pack(">HHHHHH", 1, 0x100, 1, 0, 0, 0) + b"\xc0\x0c\0\1\0\1",
        struct.pack(">HHHHHH", 1, 0x100, 1, 0, 0, 0) + b"\0\0\1\0\1",
    ],
)
def test_anything_else_gets_no_answer(packet: bytes) -> None:
    assert parse_query(packet) is None
