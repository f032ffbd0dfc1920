"""The gateway as an ASGI application: for requests and WebSockets to hosts of sandboxes."""

import asyncio
import re
from collections.abc import Callable, Coroutine, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime
from functools import partial
from typing import Any, NoReturn, Protocol

from starlette.requests import HTTPConnection
from starlette.types import Receive, Scope, Send

from sandyard.gateway import errors
from sandyard.gateway.access import AccessRequest, GatewayAccess
from sandyard.gateway.credentials import cookie_header, find_credentials, without_link
from sandyard.gateway.model import Grant, SandboxDomain, Target, TargetHost
from sandyard.gateway.ports import Targets
from sandyard.gateway.proxy import websocket
from sandyard.gateway.proxy.headers import (
    Forwarded,
    body_headers,
    canonical,
    handshake_headers,
    request_headers,
)
from sandyard.gateway.proxy.http1 import ClientGoneError, Exchange, ProgramRequest
from sandyard.kit.errors import NotFoundError
from sandyard.kit.http.access_watch import until_refused, watch_access
from sandyard.kit.http.security import values_of
from sandyard.kit.sizes import MESSAGE_BYTES
from sandyard.kit.wired import wired
from sandyard.runtime.errors import NotRunningError, PortClosedError
from sandyard.runtime.sessions.ports import PortConnection

_CONNECT_SEC = 10
_PUBLISHED_PORT = 8080
_WEBSOCKET = "WEBSOCKET"
_NOT_ASCII = re.compile(rb"[\x7f-\xff]")


@dataclass(frozen=True, slots=True)
class GatewayLimits:
    timeout_sec: float
    """How long a program may take to start its response."""
    connections_per_target: int
    held_bytes_per_target: int = 8 * MESSAGE_BYTES
    """The limit for buffered WebSocket messages of one sandbox, separately for its program's and
    its clients'; a WebSocket that exceeds it is closed."""


@dataclass(slots=True)
class _Load:
    of_program: websocket.HeldBytes
    of_clients: websocket.HeldBytes
    connections: int = 0


class PublishedProjects(Protocol):
    """Projects for everybody: files, or applications in sandboxes."""

    async def find_domain(self, domain: str) -> str | None:
        """The target that is shown at this host name of another domain."""

    async def serve(self, target_id: str, scope: Scope, receive: Receive, send: Send) -> str | None:
        """Answer a request with a file, or return the sandbox that answers it. Raises
        NotFoundError."""


@wired
class Gateway:
    """Raises errors until a response has started; the server turns them into responses."""

    targets: Mapping[str, Targets]
    """By the prefix of their ids."""
    access: GatewayAccess
    domain: SandboxDomain
    limits: GatewayLimits
    client_address: Callable[[HTTPConnection], str]
    published: PublishedProjects | None = None

    def __post_init__(self) -> None:
        self._loads: dict[str, _Load] = {}

    def connections(self, target_id: str) -> int:
        load = self._loads.get(target_id)
        return 0 if load is None else load.connections

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        host = await self._host(scope)
        scope["state"]["log"] = {"target_id": host.target_id, "port": host.port}
        if host.kind == "pub" and self.published is not None:
            with self._counted(host.target_id):
                runs = await self.published.serve(host.target_id, scope, receive, send)
            if runs is None:
                return
            host = TargetHost(host.port, runs)
        targets = self.targets.get(host.kind)
        target = None if targets is None else await targets.find(host.target_id)
        request = _access_request(scope, host)
        came_at = self.access.now()
        grant = await self.access.check(request, target, at=came_at)
        if targets is None or target is None:
            raise errors.AddressUnknownError
        if scope["type"] == "http" and _has_link(scope):
            await self._redirect(scope, host, grant, send)
            return
        with self._counted(host.target_id) as load:
            connection = await self._connect(targets, target, host)
            check = partial(self._check, request, targets, came_at)
            if scope["type"] == "websocket":
                socket = websocket.ProgramSocket(
                    connection, load.of_program, load.of_clients, self.limits.timeout_sec
                )
                until = partial(until_refused, check)
                await self._pass_socket(socket, connection.host, until, scope, receive, send)
            else:
                watch_access(scope, check)
                await self._pass_request(connection, scope, receive, send)

    async def _host(self, scope: Scope) -> TargetHost:
        """The requested host; with two `Host` headers, we and the program might use different
        ones."""
        hosts = values_of(scope["headers"], b"host")
        if len(hosts) != 1:
            raise errors.AddressUnknownError
        found = self.domain.find(hosts[0])
        custom = None if found is not None else self.domain.find_custom(hosts[0])
        if custom is not None and self.published is not None:
            target_id = await self.published.find_domain(custom)
            found = None if target_id is None else TargetHost(_PUBLISHED_PORT, target_id)
            others = [each for each in scope["headers"] if each[0] != b"host"]
            scope["headers"] = [(b"host", custom.encode()), *others]
        if found is None:
            raise errors.AddressUnknownError
        return found

    async def _redirect(
        self, scope: Scope, host: TargetHost, grant: Grant | None, send: Send
    ) -> None:
        """To the same address without the token, which a cookie replaces."""
        query = without_link(scope["query_string"])
        # Two leading slashes would send the browser to another host.
        path = b"/" + scope["raw_path"].lstrip(b"/")
        headers = [
            (b"location", path + (b"?" + query if query else b"")),
            (b"cache-control", b"no-store"),
            (b"referrer-policy", b"no-referrer"),
            (b"content-length", b"0"),
        ]
        if grant is not None:
            value, seconds = self.access.cookie_for(grant, host)
            headers.append((b"set-cookie", cookie_header(value, max_age_sec=seconds)))
        await send({"type": "http.response.start", "status": 303, "headers": headers})
        await send({"type": "http.response.body", "body": b""})

    @contextmanager
    def _counted(self, target_id: str) -> Iterator["_Load"]:
        """Limits the connections of a busy sandbox, so that it does not affect the others."""
        load = self._loads.get(target_id)
        if load is None:
            most = self.limits.held_bytes_per_target
            load = self._loads[target_id] = _Load(
                websocket.HeldBytes(most), websocket.HeldBytes(most)
            )
        if load.connections >= self.limits.connections_per_target:
            raise errors.TooManyConnectionsError(retry_after=1)
        load.connections += 1
        try:
            yield load
        finally:
            load.connections -= 1
            if not load.connections:
                del self._loads[target_id]

    async def _connect(self, targets: Targets, target: Target, host: TargetHost) -> PortConnection:
        if not target.is_running and target.wakes:
            target = await targets.wake(host.target_id)
        if not target.is_running:
            raise errors.TargetNotRunningError(target.not_running_reason)
        try:
            async with asyncio.timeout(_CONNECT_SEC):
                ports = await targets.ports(host.target_id)
                return await ports.connect(host.port)
        except PortClosedError as error:
            raise errors.PortNotListeningError from error
        except (NotRunningError, NotFoundError) as error:
            raise errors.TargetNotRunningError from error
        except TimeoutError as error:
            raise errors.ProgramTimeoutError from error

    async def _pass_request(
        self, connection: PortConnection, scope: Scope, receive: Receive, send: Send
    ) -> None:
        exchange = Exchange(connection, receive, send, timeout_sec=self.limits.timeout_sec)
        try:
            await exchange.run(self._request(scope, connection.host))
        except ClientGoneError:
            return
        finally:
            connection.writer.transport.abort()

    def _request(self, scope: Scope, host: str | None) -> ProgramRequest:
        if scope["method"] == "CONNECT":
            raise errors.TunnelRefusedError
        sent = scope["headers"]
        headers = request_headers(sent, self._forwarded(scope), host=host)
        headers += [*body_headers(sent), (b"connection", b"close")]
        return ProgramRequest(scope["method"], _request_target(scope), canonical(headers))

    async def _check(self, request: AccessRequest, targets: Targets, came_at: datetime) -> None:
        """Whether the client still has access: it may be revoked, or the sandbox made private. A
        token that has expired meanwhile does not end an open connection."""
        target = await targets.find(request.host.target_id)
        await self.access.check(request, target, at=came_at)

    async def _pass_socket(
        self,
        socket: websocket.ProgramSocket,
        host: str | None,
        until_refused: Callable[[], Coroutine[Any, Any, NoReturn]],
        scope: Scope,
        receive: Receive,
        send: Send,
    ) -> None:
        try:
            headers = handshake_headers(scope["headers"], self._forwarded(scope), host=host)
            await socket.open(
                _request_target(scope).decode("latin-1"),
                canonical(headers),
                scope["subprotocols"],
            )
            await receive()  # the client's connect event
            await send({"type": "websocket.accept", "subprotocol": socket.subprotocol})
            await websocket.pass_messages(socket, receive, send, until_refused)
        except websocket.HandshakeRefusedError as refused:
            await receive()
            start = {"status": refused.status, "headers": [(b"content-length", b"0")]}
            await send({"type": "websocket.http.response.start", **start})
            await send({"type": "websocket.http.response.body", "body": b""})
        finally:
            socket.abort()

    def _forwarded(self, scope: Scope) -> Forwarded:
        return Forwarded(
            client=self.client_address(HTTPConnection(scope)),
            host=values_of(scope["headers"], b"host")[0],
            scheme=self.domain.scheme,
            request_id=scope["state"]["request_id"],
        )


def _access_request(scope: Scope, host: TargetHost) -> AccessRequest:
    headers = scope["headers"]
    return AccessRequest(
        host=host,
        method=scope.get("method", _WEBSOCKET),
        credentials=find_credentials(headers, scope["query_string"]),
        origins=values_of(headers, b"origin"),
    )


def _has_link(scope: Scope) -> bool:
    is_read = scope["method"] in ("GET", "HEAD")
    return is_read and find_credentials((), scope["query_string"]).link is not None


def _request_target(scope: Scope) -> bytes:
    """Percent-encodes non-ASCII bytes, which some clients send unencoded. Raises
    TunnelRefusedError."""
    query = without_link(scope["query_string"])
    path: bytes = scope["raw_path"]
    if not path.startswith(b"/") and path != b"*":  # `GET example.org HTTP/1.1`, for tunnels
        raise errors.TunnelRefusedError
    target = path + (b"?" + query if query else b"")
    return _NOT_ASCII.sub(lambda found: b"%%%02X" % found[0][0], target)
