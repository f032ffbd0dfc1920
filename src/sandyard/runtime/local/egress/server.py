"""The process of an egress proxy, after it has dropped all privileges."""

import asyncio
import socket
import struct
import sys
import time
from abc import ABC, abstractmethod
from collections.abc import Coroutine
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from typing import Any

from sandyard.kit.clock import SystemClock
from sandyard.runtime.egress.http_heads import ProxyRequest
from sandyard.runtime.egress.proxy import EgressProxy
from sandyard.runtime.local.egress.dns import FAILED, UNKNOWN, Query, parse_query
from sandyard.runtime.local.ipc.packets import receive_now, send_now
from sandyard.runtime.network_model import EgressCounter, EgressPolicy, EgressReport, EgressRules
from sandyard.runtime.secrets_model import NO_SECRETS, MachineSecrets

_AT_ONCE = 16
_CONNECTIONS_PER_SEC = 200
_QUERIES_PER_SEC = 1000
_MOST_QUERIES = 64
_QUERY_BYTES = 1024
_DESTINATION = struct.Struct("=i4s4s")
_REPORT_SEC = 0.2
_BUFFER_BYTES = 64 * 1024


@dataclass(frozen=True, slots=True)
class EgressSockets:
    """Of the machine's network, served from outside."""

    proxy: socket.socket
    """Clients of the proxy connect to it."""
    direct: socket.socket | None = None
    """Receives the connections to all other hosts; each has its destination as its own address."""
    queries: socket.socket | None = None
    """Receives DNS queries."""

    def all(self) -> list[socket.socket]:
        return [each for each in (self.proxy, self.direct, self.queries) if each is not None]


def serve_egress(
    channel: socket.socket,
    sockets: EgressSockets,
    policy: EgressPolicy,
    report: EgressReport,
    secrets: MachineSecrets = NO_SECRETS,
) -> Coroutine[Any, Any, None]:
    """What serves, and reports the traffic to the supervisor, until the supervisor has gone. What
    it needs is loaded when this is called."""
    reporter = _Reporter(channel, policy, EgressCounter.of(report))
    if secrets.bound:
        sys.path.append(secrets.libraries)
        reporter.proxy.set_secrets(secrets)
    return _serve(channel, sockets, reporter)


async def _serve(channel: socket.socket, sockets: EgressSockets, reporter: "_Reporter") -> None:
    _serve_sockets(sockets, reporter.proxy)
    gone = asyncio.Event()
    asyncio.get_running_loop().add_reader(channel.fileno(), reporter.handle_request, gone)
    await gone.wait()


def _serve_sockets(sockets: EgressSockets, proxy: EgressProxy) -> None:
    ConnectionServer(sockets.proxy, proxy)
    if sockets.direct is not None:
        ConnectionServer(sockets.direct, proxy, is_direct=True)
    if sockets.queries is not None:
        QueryServer(sockets.queries, proxy)


class _Reporter:
    """Takes the supervisor's requests and reports changes to it. The supervisor treats these as
    hostile input, because the machine's programs talk to this process."""

    def __init__(
        self, channel: socket.socket, policy: EgressPolicy, counter: EgressCounter
    ) -> None:
        self._channel = channel
        self._reported_at = 0.0
        self._next_report: asyncio.TimerHandle | None = None
        self.proxy = EgressProxy(policy, SystemClock(), counter=counter, on_change=self._changed)

    def handle_request(self, gone: asyncio.Event) -> None:
        """A request sets the network, and is answered with everything known up to then."""
        try:
            packet = receive_now(self._channel)
        except OSError:
            packet = None
        if packet is None:
            gone.set()
            return
        request = packet.message
        rules = EgressRules.of(request["rules"])
        self.proxy.change(replace(self.proxy.policy, network=request["network"], rules=rules))
        if "secrets" in request:
            self.proxy.set_secrets(MachineSecrets.of(request["secrets"]))
        self._report(answered=request["number"])

    def _changed(self, line: str | None) -> None:
        if line is not None:
            self._report(line=line)
        elif self._next_report is None:
            wait_sec = max(0.0, self._reported_at + _REPORT_SEC - time.monotonic())
            self._next_report = asyncio.get_running_loop().call_later(wait_sec, self._report)

    def _report(self, **more: Any) -> None:
        if self._next_report is not None:
            self._next_report.cancel()
        self._next_report = None
        self._reported_at = time.monotonic()
        proxy = self.proxy
        report = asdict(proxy.counter.report(proxy.policy.network))
        with suppress(OSError):  # the supervisor has gone: the next read ends this process
            message = {"report": report, "private_host": proxy.private_host, **more}
            send_now(self._channel, message)


class _Server(ABC):
    """Takes what arrives at a socket. A flood has to wait."""

    def __init__(self, source: socket.socket, *, per_sec: int) -> None:
        source.settimeout(0)
        self._source = source
        self._per_sec = per_sec
        self._tasks: set[asyncio.Task[None]] = set()
        self._listen()

    def _listen(self) -> None:
        asyncio.get_running_loop().add_reader(self._source, self._take_all)

    def _take_all(self) -> None:
        taken = 0
        with suppress(OSError):
            while taken < _AT_ONCE:
                self._take()
                taken += 1
        loop = asyncio.get_running_loop()
        loop.remove_reader(self._source)
        loop.call_later(max(taken, 1) / self._per_sec, self._listen)

    @abstractmethod
    def _take(self) -> None:
        """Raises OSError if nothing waits."""

    def _run(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.ensure_future(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)


class ConnectionServer(_Server):
    def __init__(
        self, source: socket.socket, proxy: EgressProxy, *, is_direct: bool = False
    ) -> None:
        self._proxy = proxy
        self._is_direct = is_direct
        super().__init__(source, per_sec=_CONNECTIONS_PER_SEC)

    def _take(self) -> None:
        connection, _ = self._source.accept()
        self._run(self._serve(connection))

    async def _serve(self, connection: socket.socket) -> None:
        connection.settimeout(0)
        try:
            to = self._destination(connection) if self._is_direct else None
            streams = await asyncio.open_connection(sock=connection, limit=_BUFFER_BYTES)
        except OSError:
            connection.close()
            return
        await self._proxy(*streams, to)

    def _destination(self, connection: socket.socket) -> ProxyRequest:
        address, port = connection.getsockname()
        return ProxyRequest(self._proxy.names.name_of(address) or address, port)


class QueryServer(_Server):
    """Answers DNS queries from the address that they were sent to. Beyond the number at once they
    are lost, as in any network."""

    def __init__(self, source: socket.socket, proxy: EgressProxy) -> None:
        self._proxy = proxy
        super().__init__(source, per_sec=_QUERIES_PER_SEC)

    def _take(self) -> None:
        packet, ancillary, _, sender = self._source.recvmsg(
            _QUERY_BYTES, socket.CMSG_SPACE(_DESTINATION.size)
        )
        query = parse_query(packet)
        if query is not None and ancillary and len(self._tasks) < _MOST_QUERIES:
            level, kind, content = ancillary[0]
            _, _, asked = _DESTINATION.unpack(content)
            source = (level, kind, _DESTINATION.pack(0, asked, asked))
            self._run(self._answer(query, sender, source))

    async def _answer(
        self, query: Query, sender: tuple[str, int], source: tuple[int, int, bytes]
    ) -> None:
        answer = await self._found(query)
        with suppress(OSError):  # nobody waits for it
            self._source.sendmsg([answer], [source], 0, sender)

    async def _found(self, query: Query) -> bytes:
        if not query.wants_address:
            return query.answer(None)
        try:
            exists = await self._proxy.exists(query.name)
        except (OSError, TimeoutError):
            return query.failure(FAILED)
        if not exists:
            return query.failure(UNKNOWN)
        return query.answer(socket.inet_aton(self._proxy.names.address_of(query.name)))
