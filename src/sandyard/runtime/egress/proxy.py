"""The egress proxy, the only way out of a machine: for connections that its programs make directly,
tunnels by CONNECT, and plain HTTP.

It checks the name, resolves it, checks every address and connects to a checked one, in that order;
so neither a redirect nor a name that changes its address in between leads anywhere else. What the
first bytes name must be the same host. A plain request has its own connection to the host, for one
request only, so that requests can't be mixed up.
"""

import asyncio
import socket
import struct
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from typing import TYPE_CHECKING

from sandyard.kit.clock import Clock
from sandyard.kit.public_addresses import may_connect, networks_of
from sandyard.runtime.egress.http_heads import (
    MOST_HEAD_BYTES,
    OtherHostError,
    ProxyError,
    ProxyRequest,
    parse_direct_request,
    parse_request,
)
from sandyard.runtime.egress.names import NameAddresses
from sandyard.runtime.egress.openings import Opening, read_opening
from sandyard.runtime.egress.relay import Relay, Streams
from sandyard.runtime.egress.resolver import NameResolver, Resolver
from sandyard.runtime.network_model import (
    DENIED,
    NO_RULES,
    ONLY_TLS,
    OTHER_HOST,
    PRIVATE,
    EgressCounter,
    EgressPolicy,
    is_address,
    refusal_line,
)
from sandyard.runtime.secrets_model import MachineSecrets

if TYPE_CHECKING:
    from sandyard.runtime.egress.injection import Injector

MOST_CONNECTIONS = 256
_HEAD_SEC = 10.0
_CONNECT_SEC = 10.0
_IDLE_SEC = 600.0
_OPENING_SEC = 1.0
_REFUSED = 403
_ACCESS_DENIED = b"\x15\x03\x01\x00\x02\x02\x31"
"""TLS's alert for it, which clients show."""
_RESET = struct.pack("ii", 1, 0)


class EgressProxy:
    """Handles one connection per call: a client's of the proxy, or one made directly `to` a host.
    `on_change` is called when there is news, with the line of a refusal not reported before."""

    def __init__(
        self,
        policy: EgressPolicy,
        clock: Clock,
        *,
        counter: EgressCounter | None = None,
        on_change: Callable[[str | None], None] = lambda _line: None,
        resolver: Resolver | None = None,
        head_sec: float = _HEAD_SEC,
    ) -> None:
        self.policy = policy
        self._clock = clock
        self.counter = counter or EgressCounter()
        self.private_host: str | None = None
        """The last host that was refused because its address is private."""
        self._on_change = on_change
        self._head_sec = head_sec
        self._resolver: Resolver = resolver or NameResolver()
        self.names = NameAddresses()
        self._injector: Injector | None = None
        self._open: dict[asyncio.Task[None], ProxyRequest | None] = {}

    async def __call__(
        self,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
        to: ProxyRequest | None = None,
        *,
        head: bytes | None = None,
    ) -> None:
        """`head` is a client's request, if it was read already."""
        task = asyncio.current_task()
        if task is None or len(self._open) >= MOST_CONNECTIONS:
            if to is None:
                answer(writer, 503, "too many connections at once")
            else:
                _reset(writer)
            return
        self._open[task] = to
        try:
            if to is None:
                await self._serve_client((reader, writer), task, head)
            else:
                await self._serve_direct((reader, writer), to)
        except OSError:
            return  # the client disconnected
        finally:
            del self._open[task]
            writer.close()

    async def exists(self, name: str) -> bool:
        """Whether a name has an address. One that the policy refuses is not resolved, and counts as
        if: its refusal is reported when it is connected to. Raises OSError."""
        if self.policy.refusal_of_name(name) is not None:
            return True
        try:
            async with asyncio.timeout(_CONNECT_SEC):
                return bool(await self._resolver.addresses(name, 0))
        except socket.gaierror as error:
            if error.errno in (socket.EAI_NONAME, socket.EAI_NODATA):
                return False
            raise

    def change(self, policy: EgressPolicy) -> None:
        """Apply this policy from now on and close the connections that it does not allow. New rules
        for addresses, and a check of names that there was not, close all connections: permitted
        clients reconnect."""
        is_ruled = policy.rules not in (NO_RULES, self.policy.rules)
        is_ruled |= policy.is_by_name and not self.policy.is_by_name
        self.policy = policy
        for task, request in self._open.items():
            if request is None:
                continue
            if is_ruled or policy.refusal(request.host, request.port) is not None:
                task.cancel()

    def set_secrets(self, secrets: MachineSecrets) -> None:
        """From now on; connections to hosts that have a secret, or had one, are closed, unless
        only budgets are new."""
        before, self._injector = self._injector, None
        for each in secrets.bound:
            self.counter.use_of(each.id)  # a report names all that it has
        if secrets.bound:
            from sandyard.runtime.egress.injection import Injector  # needs an installed package

            self._injector = Injector(secrets, before)
        if before is not None and before.secrets.differs_in_budgets_alone(secrets):
            before.secrets = secrets  # for the connections that are open
            return
        for task, request in self._open.items():
            if request is not None and (
                _has_bound(self._injector, request) or _has_bound(before, request)
            ):
                task.cancel()

    async def _serve_client(
        self, near: Streams, task: "asyncio.Task[None]", head: bytes | None
    ) -> None:
        try:
            head = head or await read_head(near[0], within_sec=self._head_sec)
            request = self._open[task] = self._parsed(head)
            far = await self._connect(request)
        except ProxyError as error:
            answer(near[1], error.status, str(error))
            return
        if request.head is None:
            near[1].write(b"HTTP/1.1 200 Connection established\r\n\r\n")
        await self._relay(near, far, request)

    async def _serve_direct(self, near: Streams, request: ProxyRequest) -> None:
        try:
            far = await self._connect(request)
        except ProxyError as error:
            opening = Opening(b"")
            if error.status == _REFUSED:
                with suppress(TimeoutError):
                    async with asyncio.timeout(_OPENING_SEC):
                        opening = await read_opening(near[0], is_strict=False)
            _show(near[1], error, opening)
            return
        await self._relay(near, far, request)

    def _parsed(self, head: bytes) -> ProxyRequest:
        request = parse_request(head)
        if request.head is None:  # a client that has looked up the name itself
            return replace(request, host=self.names.name_of(request.host) or request.host)
        return request

    async def _relay(self, near: Streams, far: Streams, request: ProxyRequest) -> None:
        self.counter.connections += 1
        relay = Relay(near, far, _IDLE_SEC, self._sent, self._received)
        try:
            if request.head is not None:
                await relay.exchange(request)
                return
            if _has_bound(self._injector, request):
                await self._inject(near, far, request)
                return
            opening = await relay.tunnel(self._first_bytes(near[0], request))
            if opening is not None:
                await self._serve_opening(relay, opening, request)
        finally:
            far[1].close()
            self._on_change(None)

    async def _inject(self, near: Streams, far: Streams, request: ProxyRequest) -> None:
        """Nothing but TLS to this very host: its requests are read, and get their secrets."""
        from sandyard.runtime.egress.injection import InjectedConnection
        from sandyard.runtime.egress.tls_streams import TlsStream

        opening = await read_opening(near[0], is_strict=True)
        if not opening.data or self._injector is None:
            return
        if opening.protocol != "tls" or not opening.is_for(request.host, is_strict=True):
            _show(near[1], self._refused(request, ONLY_TLS), opening)
            return
        injector, host = self._injector, request.host
        connection = InjectedConnection(
            TlsStream(near, injector.server, first=opening.data, idle_sec=_IDLE_SEC),
            TlsStream(far, injector.client, server_name=host, idle_sec=_IDLE_SEC),
            host,
            request.port,
            injector,
            refused=lambda reason: self._refused(request, reason),
            use_of=self.counter.use_of,
            count=self._count,
        )
        with suppress(TimeoutError):
            await connection.serve()

    async def _first_bytes(
        self, reader: asyncio.StreamReader, request: ProxyRequest
    ) -> bytes | Opening:
        """The first bytes of a tunnel, if they may be sent as they are."""
        if is_address(request.host):
            return await reader.read(MOST_HEAD_BYTES)
        is_strict = self.policy.is_by_name
        opening = await read_opening(reader, is_strict=is_strict)
        return opening.data if opening.is_for(request.host, is_strict=is_strict) else opening

    async def _serve_opening(self, relay: Relay, opening: Opening, request: ProxyRequest) -> None:
        """Where some names are reached and others are not, each request is checked, so it is alone
        on its connection. Anything else that may be for another host is refused."""
        try:
            if opening.protocol != "http":
                raise self._refused(request, OTHER_HOST)
            head, end, body = opening.data.lstrip(b"\r\n").partition(b"\r\n\r\n")
            alone = parse_direct_request(head + end, request.host, request.port)
        except OtherHostError:
            _show(relay.near[1], self._refused(request, OTHER_HOST), opening)
        except ProxyError as error:
            _show(relay.near[1], error, opening)
        else:
            await relay.exchange(alone, body)

    async def _connect(self, request: ProxyRequest) -> Streams:
        """Raises ProxyError if it is refused or can't be reached."""
        host, port = request.host, request.port
        if (reason := self.policy.refusal(host, port)) is not None:
            raise self._refused(request, reason)
        try:
            async with asyncio.timeout(_CONNECT_SEC):
                addresses = await self._resolver.addresses(host, port)
            permitted = self._permitted(request, addresses)
            allowed = networks_of(self.policy.allowed_networks)
            if all(may_connect(address, allowed=allowed) for address in addresses):
                return await _connect_to_first(permitted, port)
        except (OSError, TimeoutError) as error:
            reason = str(error) or "it took too long"
            raise ProxyError(f"{host} could not be reached: {reason}", 502) from error
        self.private_host = host
        raise self._refused(request, PRIVATE)

    def _permitted(self, request: ProxyRequest, addresses: list[str]) -> list[str]:
        """The addresses that the rules allow. Raises ProxyError if they allow none."""
        reasons = {each: self.policy.refusal_of_address(request.host, each) for each in addresses}
        permitted = [each for each, reason in reasons.items() if reason is None]
        if addresses and not permitted:
            raise self._refused(request, next(iter(reasons.values())) or DENIED)
        return permitted

    def _refused(self, request: ProxyRequest, reason: str) -> ProxyError:
        host, port = request.host, request.port
        is_new = self.counter.refuse(host, port, reason, at=self._clock.now())
        self._on_change(refusal_line(host, reason) if is_new else None)
        return ProxyError(refusal_line(host, reason), _REFUSED)

    def _count(self, sent: int, received: int) -> None:
        self.counter.bytes_sent += sent
        self.counter.bytes_received += received

    def _sent(self, length: int) -> None:
        self.counter.bytes_sent += length

    def _received(self, length: int) -> None:
        self.counter.bytes_received += length


def _has_bound(injector: "Injector | None", request: ProxyRequest) -> bool:
    return injector is not None and bool(injector.bound_to(request.host, request.port))


async def read_head(reader: asyncio.StreamReader, *, within_sec: float = _HEAD_SEC) -> bytes:
    """The head of a request. Raises ProxyError."""
    try:
        async with asyncio.timeout(within_sec):
            head = await reader.readuntil(b"\r\n\r\n")
    except TimeoutError:
        raise ProxyError("the request did not arrive in time", 408) from None
    except asyncio.IncompleteReadError:
        raise ProxyError("the request was interrupted") from None
    except asyncio.LimitOverrunError:
        raise ProxyError("the head of the request is too large", 431) from None
    if len(head) > MOST_HEAD_BYTES:
        raise ProxyError("the head of the request is too large", 431)
    return head


async def _connect_to_first(addresses: list[str], port: int) -> Streams:
    """Connect to the first checked address that answers, without resolving again."""
    failure: OSError | TimeoutError = OSError("it has no address")
    for address in addresses:
        try:
            async with asyncio.timeout(_CONNECT_SEC):
                return await asyncio.open_connection(address, port)
        except (OSError, TimeoutError) as error:
            failure = error
    raise failure


def _show(writer: asyncio.StreamWriter, error: ProxyError, opening: Opening) -> None:
    """Let a program that speaks to a server see that it was refused, as its protocol can say it."""
    if opening.protocol == "http":
        answer(writer, error.status, str(error))
    elif opening.protocol == "tls":
        writer.write(_ACCESS_DENIED)
        writer.close()
    else:
        _reset(writer)


def _reset(writer: asyncio.StreamWriter) -> None:
    connection = writer.get_extra_info("socket")
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET)
    writer.transport.abort()


def answer(writer: asyncio.StreamWriter, status: int, message: str, *, more: str = "") -> None:
    """The reason is in the status line too, because pip, npm and curl show that. `more` are header
    lines."""
    plain = "".join(letter if " " <= letter <= "~" else "?" for letter in message)
    body = f"{plain}\n".encode()
    head = (
        f"HTTP/1.1 {status} {plain}\r\nContent-Type: text/plain\r\n{more}"
        f"Content-Length: {len(body)}\r\nConnection: close\r\n\r\n"
    )
    writer.write(head.encode() + body)
    writer.close()
