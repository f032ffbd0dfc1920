"""What sockets hold, by what the kernel tells of the whole network and of each."""

import os
import socket
from collections.abc import Iterator
from contextlib import ExitStack, suppress

import pytest

from sandyard.runtime.local.host.socket_diagnosis import SocketDiagnosis, open_diagnosis
from sandyard.runtime.local.limits.memory import SocketMemory

_PAIRS = 150
_PIECE = bytes(4096)


@pytest.fixture
def memory() -> Iterator[SocketMemory]:
    """Of the network of the tests, in which others have sockets too."""
    diagnosis = SocketDiagnosis(open_diagnosis().detach())
    memory = SocketMemory(os.getpid(), diagnosis)
    yield memory
    memory.close()
    diagnosis.close()


@pytest.fixture
def stack() -> Iterator[ExitStack]:
    with ExitStack() as stack:
        yield stack


def fill(sender: socket.socket) -> int:
    """Until it takes no more; how much it took."""
    sender.setblocking(False)  # noqa: FBT003 - its own way
    taken = 0
    with suppress(BlockingIOError):
        while True:
            taken += sender.send(_PIECE)
    return taken


def filled(stack: ExitStack, *, is_closed: bool) -> int:
    """Pairs of sockets with as much as they take between them."""
    taken = 0
    for _ in range(_PAIRS):
        ours, theirs = socket.socketpair()
        stack.enter_context(theirs)
        taken += fill(ours)
        if is_closed:
            ours.close()
        else:
            stack.enter_context(ours)
    return taken


@pytest.mark.parametrize("is_closed", [False, True])
def test_what_nobody_reads_is_counted_also_of_those_who_left(
    memory: SocketMemory, stack: ExitStack, *, is_closed: bool
) -> None:
    before = memory.held_bytes()
    taken = filled(stack, is_closed=is_closed)
    assert taken > 10 << 20
    assert memory.held_bytes() - before > taken * 0.8
    stack.close()
    assert memory.held_bytes() - before < taken // 2


def test_connections_are_counted(memory: SocketMemory, stack: ExitStack) -> None:
    listener = stack.enter_context(socket.create_server(("127.0.0.1", 0)))
    before, taken = memory.held_bytes(), 0
    for _ in range(_PAIRS):
        sender = stack.enter_context(socket.create_connection(listener.getsockname()))
        stack.enter_context(listener.accept()[0])
        taken += fill(sender)
    assert memory.held_bytes() - before > taken * 0.8


@pytest.mark.parametrize("address", ["127.0.0.1", "::1"])
def test_a_port_is_listened_on_from_when_it_is_to_when_it_is_not(
    address: str, stack: ExitStack
) -> None:
    diagnosis = SocketDiagnosis(open_diagnosis().detach())
    stack.callback(diagnosis.close)
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    made = stack.enter_context(socket.socket(family))
    made.bind((address, 0))
    port = made.getsockname()[1]
    assert port not in diagnosis.listening_ports()
    made.listen()
    stack.enter_context(socket.create_connection((address, port)))
    assert diagnosis.listening_ports().count(port) == 1
    made.close()
    assert port not in diagnosis.listening_ports()
