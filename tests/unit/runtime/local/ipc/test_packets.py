"""Packets: a message, bytes and descriptors; anything else is refused."""

import os
import socket
from collections.abc import Iterator

import pytest

from sandyard.runtime.local.ipc.packets import (
    MOST_BYTES,
    packet_pair,
    receive,
    receive_now,
    send,
    send_now,
)

Pair = tuple[socket.socket, socket.socket]


@pytest.fixture
def pair() -> Iterator[Pair]:
    ours, theirs = packet_pair()
    with ours, theirs:
        yield ours, theirs


def test_a_packet_arrives_whole_with_its_descriptors(pair: Pair) -> None:
    reader, writer = os.pipe()
    data = os.urandom(MOST_BYTES)
    send_now(pair[0], {"op": "x", "line": "a\nb"}, data, (writer,))
    os.close(writer)
    packet = receive_now(pair[1])
    assert packet is not None
    assert (packet.message, packet.data) == ({"op": "x", "line": "a\nb"}, data)
    [given] = packet.descriptors
    os.write(given, b"through")
    assert os.read(reader, 100) == b"through"
    assert not os.get_inheritable(given)
    packet.close()
    os.close(reader)


def test_the_end_is_no_packet(pair: Pair) -> None:
    pair[0].close()
    assert receive_now(pair[1]) is None


@pytest.mark.parametrize(
    "content", [b"no json", b"[1]", b"\xff\xfe", b'{"a": 1', b'{"a":' + b"[" * 100_000]
)
def test_an_invalid_packet_is_refused(pair: Pair, content: bytes) -> None:
    pair[0].send(content)
    with pytest.raises(OSError, match="not a valid packet"):
        receive_now(pair[1])


async def test_whoever_waits_is_told(pair: Pair) -> None:
    for end in pair:
        end.settimeout(0)
    await send(pair[0], {"n": 1})
    packet = await receive(pair[1])
    assert packet is not None
    assert packet.message == {"n": 1}
