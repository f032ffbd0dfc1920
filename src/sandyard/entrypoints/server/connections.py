"""Limits on connections, which the HTTP server lacks: their number, and how long one may stall.

The server accepts every connection, so a health check always gets through. Once a second this
checks the process's own sockets and closes those beyond the limits, longest idle first, and those
whose client does not read its response.
"""

import asyncio
import errno
import fcntl
import logging
import os
import resource
import socket
import stat
import struct
import sys
import termios
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from ipaddress import ip_network

from sandyard.kit.http.client_address import Network, network_of

logger = logging.getLogger(__name__)

_LOOK_EVERY_SEC = 1.0
_SPARE_DESCRIPTORS = 256
"""For files, databases and connections accepted between two checks."""
_DESCRIPTORS = "/proc/self/fd"
_FAMILIES = (socket.AF_INET, socket.AF_INET6)
_TCP_INFO = struct.Struct("44xI4xI64xQQ")
"""Fields of Linux's `tcp_info`: tcpi_last_data_sent, tcpi_last_data_recv, tcpi_bytes_acked and
tcpi_bytes_received."""

Peer = tuple[str, int]
"""The address and port of a client."""


@dataclass(frozen=True, slots=True)
class ConnectionPolicy:
    most: int
    most_per_address: int
    write_timeout_sec: float
    trusted: Sequence[Network] = ()
    """Addresses of proxies, each of which represents many clients."""

    def within(self, descriptors: int) -> "ConnectionPolicy":
        """Reduced to what this many descriptors allow."""
        return replace(self, most=min(self.most, max(1, descriptors - _SPARE_DESCRIPTORS)))


@dataclass(frozen=True, slots=True)
class Connection:
    """One client's connection, as the kernel sees it."""

    inode: int
    address: str
    """For an IPv6 client, its network."""
    silent_sec: float
    """Time since data was last sent or received."""
    unsent_bytes: int = 0
    acked_bytes: int = 0
    """Bytes that the client has acknowledged so far."""
    received_bytes: int = 0
    """Bytes that the server has read so far."""
    peer: Peer = ("", 0)


FindConnections = Callable[[Sequence[Connection]], Mapping[Connection, str]]


def choose_surplus(
    connections: Sequence[Connection], policy: ConnectionPolicy
) -> dict[Connection, str]:
    """Connections beyond the limits, each with the reason."""
    chosen: dict[Connection, str] = {}
    by_address: dict[str, list[Connection]] = defaultdict(list)
    for each in sorted(connections, key=lambda each: each.silent_sec, reverse=True):
        by_address[each.address].append(each)
    for address, theirs in by_address.items():
        surplus = max(0, len(theirs) - policy.most_per_address)
        if surplus and not _is_trusted(address, policy.trusted):
            chosen |= dict.fromkeys(theirs[:surplus], "too many from one address")
    left = [each for each in connections if each not in chosen]
    left.sort(key=lambda each: each.silent_sec, reverse=True)
    surplus = max(0, len(left) - policy.most)
    return chosen | dict.fromkeys(left[:surplus], "too many connections")


class Stalls:
    """Finds connections whose clients have not read any of their response for too long."""

    def __init__(self, write_timeout_sec: float) -> None:
        self._timeout = write_timeout_sec
        self._since: dict[int, tuple[int, float]] = {}

    def find(self, connections: Sequence[Connection], *, now: float) -> dict[Connection, str]:
        waiting = [each for each in connections if each.unsent_bytes]
        before, self._since = self._since, {}
        for each in waiting:
            acked, since = before.get(each.inode, (-1, now))
            self._since[each.inode] = (
                each.acked_bytes,
                since if acked == each.acked_bytes else now,
            )
        stalled = [each for each in waiting if now - self._since[each.inode][1] > self._timeout]
        return dict.fromkeys(stalled, "its client does not read the response")


class ConnectionLimits:
    """Enforces the policy on the connections of one listening port."""

    def __init__(
        self, port: int, policy: ConnectionPolicy, *, find_more: FindConnections | None = None
    ) -> None:
        """`find_more` returns further connections to close, with the reasons."""
        self._port = port
        self._find_more = find_more
        wanted = 2 * policy.most + _SPARE_DESCRIPTORS  # a request that is passed on has another one
        self._policy = policy.within(raise_descriptor_limit(wanted))
        self._stalls = Stalls(policy.write_timeout_sec)
        self._reserve = _reserved()

    async def enforce_forever(self) -> None:
        if sys.platform != "linux":
            logger.info("connections are not limited: this needs Linux")
            return
        while True:
            await asyncio.sleep(_LOOK_EVERY_SEC)
            try:
                await asyncio.to_thread(self.enforce)
            except OSError as error:  # no free descriptor for the check; the next one may succeed
                logger.warning("connections could not be checked", extra={"reason": str(error)})

    def enforce(self) -> int:
        """Close connections that exceed the limits or stall; returns their number."""
        for descriptor in self._reserve:  # a check must be possible when no others are left
            os.close(descriptor)
        try:
            found = dict(_connections(self._port))
            chosen = self._stalls.find([*found], now=time.monotonic())
            if self._find_more is not None:
                chosen |= self._find_more([*found])
            going_on = [each for each in found if each not in chosen]
            chosen |= choose_surplus(going_on, self._policy)
            for connection in chosen:
                _break_off(connection, found[connection])
        finally:
            self._reserve = _reserved()
        _log_closed(chosen)
        return len(chosen)


def _reserved() -> list[int]:
    """Reserved descriptors for a check: one for the listing, one for a socket."""
    with suppress(OSError):
        return [os.open(os.devnull, os.O_RDONLY) for _ in range(2)]
    return []


def _connections(port: int) -> Iterator[tuple[Connection, int]]:
    """The accepted connections of the port, with their descriptors. Duplicates one descriptor at a
    time: a process that is full of connections has no others left."""
    for name in os.listdir(_DESCRIPTORS):  # noqa: PTH208 - thousands of them, every second
        with _handle(int(name)) as handle:
            connection = None if handle is None else _connection(handle, port)
        if connection is not None:
            yield connection, int(name)


@contextmanager
def _handle(descriptor: int) -> Iterator[socket.socket | None]:
    """A duplicate of the socket, which no other thread closes meanwhile; None if it is not a
    socket.

    Files are skipped: closing a duplicate of a database's descriptor would release SQLite's locks
    on it.
    """
    try:
        is_socket = stat.S_ISSOCK(os.fstat(descriptor).st_mode)
        again = os.dup(descriptor) if is_socket else None
    except OSError as error:
        if error.errno != errno.EBADF:  # else it was just closed
            raise
        again = None
    if again is None:
        yield None
        return
    with socket.socket(fileno=again) as handle:
        yield handle


def _connection(handle: socket.socket, port: int) -> Connection | None:
    try:
        if handle.family not in _FAMILIES or handle.getsockname()[1] != port:
            return None
        address, peer_port = handle.getpeername()[:2]
        info = handle.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, _TCP_INFO.size)
        unsent = _queued(handle, termios.TIOCOUTQ)
        unread = _queued(handle, termios.FIONREAD)
    except OSError:  # it is listening, or already closed
        return None
    last_sent_ms, last_received_ms, acked, received = _TCP_INFO.unpack(info)
    return Connection(
        inode=os.fstat(handle.fileno()).st_ino,
        address=network_of(address),
        silent_sec=min(last_sent_ms, last_received_ms) / 1000,
        unsent_bytes=unsent,
        acked_bytes=acked,
        received_bytes=received - unread,
        peer=(address, peer_port),
    )


def _queued(handle: socket.socket, request: int) -> int:
    count: int = struct.unpack("i", fcntl.ioctl(handle, request, b"\0" * 4))[0]
    return count


def _break_off(connection: Connection, descriptor: int) -> None:
    """Discard unsent data and reset the connection; no effect if it is already closed."""
    with _handle(descriptor) as handle, suppress(OSError):
        if handle is not None and os.fstat(handle.fileno()).st_ino == connection.inode:
            handle.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            handle.shutdown(socket.SHUT_RDWR)


def _is_trusted(address: str, trusted: Sequence[Network]) -> bool:
    host = ip_network(address)
    return any(
        host.version == network.version and host.subnet_of(network)  # type: ignore[arg-type]
        for network in trusted
    )


def _log_closed(chosen: Mapping[Connection, str]) -> None:
    counted = Counter((connection.address, reason) for connection, reason in chosen.items())
    for (address, reason), count in counted.items():
        logger.warning(
            "connections were closed", extra={"address": address, "reason": reason, "count": count}
        )


def raise_descriptor_limit(wanted: int) -> int:
    """Raise the descriptor limit as far as allowed and wanted; each connection takes one."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft < wanted:
        soft = min(wanted, hard)
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    return soft
