"""Which connections are broken off, and that it is those and no others."""

import fcntl
import os
import resource
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, suppress
from ipaddress import ip_network
from pathlib import Path

import pytest

from sandyard.entrypoints.server.connections import (
    Connection,
    ConnectionLimits,
    ConnectionPolicy,
    Stalls,
    choose_surplus,
)

ROOMY = ConnectionPolicy(most=100, most_per_address=100, write_timeout_sec=30)


def connection(
    number: int, *, address: str = "192.0.2.1", silent: float = 0, unsent: int = 0, acked: int = 0
) -> Connection:
    return Connection(number, address, silent, unsent, acked)


def chosen(connections: list[Connection], policy: ConnectionPolicy) -> set[int]:
    return {each.inode for each in choose_surplus(connections, policy)}


class TestChoice:
    def test_nobody_goes_while_there_is_room(self) -> None:
        assert chosen([connection(n, silent=3600) for n in range(100)], ROOMY) == set()

    def test_the_longest_silent_go_first(self) -> None:
        policy = ConnectionPolicy(most=2, most_per_address=100, write_timeout_sec=30)
        assert chosen([connection(n, silent=n) for n in range(5)], policy) == {2, 3, 4}

    def test_one_address_has_its_own_limit(self) -> None:
        policy = ConnectionPolicy(most=100, most_per_address=1, write_timeout_sec=30)
        greedy = [connection(n, silent=n) for n in range(3)]
        assert chosen([*greedy, connection(9, address="192.0.2.9")], policy) == {1, 2}

    @pytest.mark.parametrize("address", ["10.1.2.3", "fd00::7"])
    def test_a_proxy_speaks_for_many(self, address: str) -> None:
        trusted = (ip_network("10.0.0.0/8"), ip_network("fd00::/8"))
        policy = ConnectionPolicy(100, 1, 30, trusted)
        assert chosen([connection(n, address=address) for n in range(3)], policy) == set()

    @pytest.mark.parametrize(("descriptors", "most"), [(100_000, 100), (300, 44), (10, 1)])
    def test_descriptors_are_a_limit_too(self, descriptors: int, most: int) -> None:
        assert ROOMY.within(descriptors).most == most


class TestStalls:
    def test_who_takes_nothing_goes_after_the_time_out(self) -> None:
        stalls, stuck = Stalls(30), connection(1, unsent=7)
        assert stalls.find([stuck], now=0) == {}
        assert stalls.find([stuck], now=30) == {}
        assert stalls.find([stuck], now=31) == {stuck: "its client does not read the response"}

    def test_who_takes_a_little_stays(self) -> None:
        stalls = Stalls(30)
        stalls.find([connection(1, unsent=7)], now=0)
        stalls.find([connection(1, unsent=6, acked=1)], now=29)
        assert stalls.find([connection(1, unsent=6, acked=1)], now=58) == {}

    def test_who_has_all_of_it_is_not_waited_for(self) -> None:
        stalls = Stalls(30)
        stalls.find([connection(1, unsent=7)], now=0)
        stalls.find([connection(1)], now=20)
        assert stalls.find([connection(1, unsent=7)], now=40) == {}


class TestRealSockets:
    @pytest.fixture
    def server(self) -> Iterator[socket.socket]:
        with socket.create_server(("127.0.0.1", 0)) as server:
            yield server

    def test_the_surplus_is_told_at_once_and_the_rest_goes_on(self, server: socket.socket) -> None:
        port = server.getsockname()[1]
        policy = ConnectionPolicy(most=2, most_per_address=100, write_timeout_sec=30)
        with ExitStack() as stack:
            pairs = [connected(stack, server) for _ in range(3)]
            time.sleep(0.05)
            for client, accepted in pairs[1:]:  # the first is the one that stays silent
                client.send(b"x")
                accepted.recv(1)
            assert ConnectionLimits(port, policy).enforce() == 1
            assert pairs[0][0].recv(1) == b""
            pairs[0][1].close()
            assert ConnectionLimits(port, policy).enforce() == 0
            pairs[1][1].send(b"y")
            assert pairs[1][0].recv(1) == b"y"

    def test_who_does_not_read_is_seen(self, server: socket.socket) -> None:
        port = server.getsockname()[1]
        limits = ConnectionLimits(port, ConnectionPolicy(100, 100, write_timeout_sec=0.05))
        with ExitStack() as stack:
            _, stuck = connected(stack, server)
            client, accepted = connected(stack, server)
            stuck.settimeout(0)
            with suppress(BlockingIOError):
                while True:
                    stuck.send(b"x" * 65536)
            accepted.send(b"x")
            client.recv(1)
            while not limits.enforce():  # what is on its way may still be taken by the kernel
                time.sleep(0.06)
            with pytest.raises(OSError, match="Broken pipe"):
                stuck.send(b"x")

    def test_a_look_is_possible_when_no_descriptor_is_left(self, server: socket.socket) -> None:
        policy = ConnectionPolicy(most=1, most_per_address=100, write_timeout_sec=30)
        limits = ConnectionLimits(server.getsockname()[1], policy)
        soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
        with ExitStack() as stack:
            for _ in range(3):
                connected(stack, server)
            stack.callback(resource.setrlimit, resource.RLIMIT_NOFILE, (soft, hard))
            used = max(int(each) for each in os.listdir("/proc/self/fd"))  # noqa: PTH208
            resource.setrlimit(resource.RLIMIT_NOFILE, (used + 8, hard))
            with suppress(OSError):
                while True:
                    stack.enter_context(open(os.devnull, "rb"))  # noqa: PTH123
            assert limits.enforce() == 2

    def test_a_look_leaves_the_locks_of_files_alone(
        self, server: socket.socket, tmp_path: Path
    ) -> None:
        """Those that SQLite has on its databases end with any handle that is closed."""
        limits = ConnectionLimits(server.getsockname()[1], ROOMY)
        with (tmp_path / "database").open("wb") as database:
            fcntl.lockf(database, fcntl.LOCK_EX)
            limits.enforce()
            another = (
                f"import fcntl; file = open({database.name!r}, 'wb')\n"
                "fcntl.lockf(file, fcntl.LOCK_EX | fcntl.LOCK_NB)"
            )
            tried = subprocess.run(
                [sys.executable, "-c", another], capture_output=True, check=False
            )
        assert b"BlockingIOError" in tried.stderr

    def test_connections_of_other_ports_are_left_alone(self, server: socket.socket) -> None:
        with ExitStack() as stack, socket.create_server(("127.0.0.1", 0)) as other:
            connected(stack, server)
            policy = ConnectionPolicy(most=1, most_per_address=0, write_timeout_sec=0)
            assert ConnectionLimits(other.getsockname()[1], policy).enforce() == 0


def connected(stack: ExitStack, server: socket.socket) -> tuple[socket.socket, socket.socket]:
    """A client and what the server accepted."""
    client = stack.enter_context(socket.create_connection(server.getsockname(), timeout=10))
    accepted = stack.enter_context(server.accept()[0])
    return client, accepted
