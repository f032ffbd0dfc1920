"""Puts secrets into requests: ends TLS for the hosts that they are bound to, and for no others.

What a program sends is parsed, checked and written anew for the host, so that both read the same
requests. Bodies are streamed. Loaded only where there are secrets: it needs an installed package.
"""

import asyncio
import os
import ssl
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from typing import Any

import h11

from sandyard.runtime.egress.echoes import EchoedError, EchoGuard
from sandyard.runtime.egress.http_heads import ProxyError
from sandyard.runtime.egress.tls_streams import TlsStream, http_only
from sandyard.runtime.network_model import SecretUse
from sandyard.runtime.secrets_model import (
    BoundSecret,
    MachineSecrets,
    Placed,
    PlacementError,
    place,
)

UNTRUSTED = "the program does not trust this sandbox's certificates"
_MOST_HEAD_BYTES = 64 * 1024
_LAST_SEC = 1.0
_PAUSE_SEC = 0.2
_FORBIDDEN = 403
_OF_CONNECTIONS = frozenset(
    {
        *(b"connection", b"keep-alive", b"proxy-connection", b"te", b"trailer", b"upgrade"),
        *(b"proxy-authorization", b"proxy-authenticate"),
    }
)
_WEB_SOCKET = b"websocket"
_SWITCHING = 101
_Event = h11.Event | type[h11.PAUSED]


class Injector:
    """The secrets of one machine, and the two ends of TLS that they need."""

    def __init__(self, secrets: MachineSecrets, before: "Injector | None" = None) -> None:
        self.secrets = secrets
        self.server = _server_context(secrets)
        """For the machine's programs."""
        is_same = before is not None and before.secrets.trusted == secrets.trusted
        self.client: ssl.SSLContext = (
            before.client if before and is_same else _client_context(secrets)
        )
        """For the hosts: by the public authorities, and those of the operator."""

    def bound_to(self, host: str, port: int) -> Sequence[BoundSecret]:
        return self.secrets.bound_to(host, port)


def _server_context(secrets: MachineSecrets) -> ssl.SSLContext:
    made = http_only(ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER))
    file = os.memfd_create("certificate")
    try:
        os.write(file, f"{secrets.certificate}\n{secrets.key}\n".encode())
        made.load_cert_chain(f"/proc/self/fd/{file}")
    finally:
        os.close(file)
    return made


def _client_context(secrets: MachineSecrets) -> ssl.SSLContext:
    made = http_only(ssl.create_default_context())
    if secrets.trusted:
        made.load_verify_locations(cadata=secrets.trusted)
    return made


class _Peer:
    """One side of the connection."""

    def __init__(self, stream: TlsStream, role: "type[h11.CLIENT] | type[h11.SERVER]") -> None:
        self.stream = stream
        self.http = h11.Connection(role, max_incomplete_event_size=_MOST_HEAD_BYTES)
        self._unsent = b""

    async def event(self, *, passed_to: "_Peer | None" = None) -> _Event:
        """What was passed to the other side is sent before this one is waited for."""
        try:
            while (found := self.http.next_event()) is h11.NEED_DATA:
                if passed_to is not None:
                    await passed_to.flush()
                self.http.receive_data(await self.stream.read())
        except h11.RemoteProtocolError as error:
            if self.http.our_role is h11.SERVER:
                raise
            raise ProxyError(f"the host's answer is not valid HTTP: {error}", 502) from None
        return found  # type: ignore[return-value]

    def add(self, event: h11.Event) -> None:
        self._unsent += self.http.send(event) or b""

    async def flush(self) -> None:
        if self._unsent:
            data, self._unsent = self._unsent, b""
            await self.stream.write(data)

    async def send(self, event: h11.Event) -> None:
        self.add(event)
        await self.flush()


@dataclass(slots=True)
class InjectedConnection:
    """Between a program and a host, request by request, until one of them closes it."""

    near: TlsStream
    far: TlsStream
    host: str
    port: int
    injector: Injector
    refused: Callable[[str], ProxyError]
    """Records a refusal, with its reason."""
    use_of: Callable[[str], SecretUse]
    count: Callable[[int, int], None]
    """Bytes sent and received."""
    _program: _Peer = field(init=False)
    _server: _Peer | None = field(init=False, default=None)
    _used: Sequence[BoundSecret] = field(init=False, default=())

    async def serve(self) -> None:
        """Raises OSError, TimeoutError."""
        try:
            await self.near.handshake()
        except ssl.SSLError as error:
            self._note_distrust(error)
            return
        self._program = _Peer(self.near, h11.SERVER)
        try:
            while (request := await self._next_request()) is not None:
                if not await self._exchange(request):
                    return
        except ssl.SSLError as error:
            self._note_distrust(error)
        except ProxyError as error:
            await self._answer(error.status, str(error))
        except EchoedError:
            names = ", ".join(each.name for each in self._bound())
            await self._answer(502, str(self.refused(f"its answer repeated the secret {names}")))
        except h11.RemoteProtocolError as error:
            await self._answer(error.error_status_hint, str(error))
        finally:
            self.near.close()
            if self._server is not None:
                self.far.close()

    def _bound(self) -> Sequence[BoundSecret]:
        return self.injector.bound_to(self.host, self.port)

    def _note_distrust(self, error: ssl.SSLError) -> None:
        if self._server is None and "alert" in str(error).lower():
            self.refused(UNTRUSTED)

    async def _next_request(self) -> h11.Request | None:
        """None if the program or the host closes the connection instead. The host is watched while
        the program pauses, and looked at before each request."""
        event: _Event | None = None
        try:
            async with asyncio.timeout(_PAUSE_SEC):
                event = await self._program.event()
        except TimeoutError:
            asking = asyncio.ensure_future(self._program.event())
            closing = asyncio.ensure_future(self._until_closed())
            async with _together(asking, closing):
                if not closing.done():
                    event = asking.result()
        else:
            with suppress(TimeoutError):
                async with asyncio.timeout(0):
                    await self._until_closed()
                    event = None
        return event if isinstance(event, h11.Request) else None

    async def _until_closed(self) -> None:
        """Whatever a host sends between two requests, the connection is of no more use."""
        if self._server is None:
            await asyncio.Event().wait()
        with suppress(OSError, TimeoutError):
            await self.far.read()

    async def _exchange(self, request: h11.Request) -> bool:
        """Returns whether another request may follow."""
        placed = self._placed(request)
        server = self._server or await self._connected()
        await server.send(_request_of(request, placed))
        if self._program.http.their_state is h11.DONE:  # it has no body
            server.add(h11.EndOfMessage())
            is_upgraded = await self._send_answer(server, placed)
        else:
            is_upgraded = await self._exchange_body(server, placed)
        if is_upgraded:
            await self._tunnel(server, EchoGuard(placed.traces))
            return False
        both = (self._program.http, server.http)
        if any({each.our_state, each.their_state} != {h11.DONE} for each in both):
            return False
        for http in both:
            http.start_next_cycle()
        return True

    async def _exchange_body(self, server: _Peer, placed: Placed) -> bool:
        sending = asyncio.ensure_future(self._send_body(server))
        answering = asyncio.ensure_future(self._send_answer(server, placed))
        async with _together(sending, answering):
            if sending.done():
                sending.result()
            is_upgraded = await answering
            if server.http.our_state is h11.DONE:
                await asyncio.wait([sending], timeout=_LAST_SEC)
        return is_upgraded

    async def _connected(self) -> _Peer:
        try:
            await self.far.handshake()
        except (OSError, TimeoutError) as error:
            reason = getattr(error, "verify_message", None) or str(error)
            message = f"{self.host} could not be reached by TLS: {reason}"
            raise ProxyError(message, 502) from None
        self._server = _Peer(self.far, h11.CLIENT)
        return self._server

    def _placed(self, request: h11.Request) -> Placed:
        """Raises ProxyError."""
        method, target = request.method.decode(), request.target.decode("latin-1")
        headers = _forwarded(request, self.host, self.port)
        if method in ("CONNECT", "TRACE") or not (target.startswith("/") or target == "*"):
            raise ProxyError("send a path of this host; not CONNECT or TRACE")
        try:
            placed = place(self._bound(), method, target, headers)
        except PlacementError as error:
            raise self.refused(str(error)) from None
        for secret in placed.used:
            if _is_used_up(secret, self.use_of(secret.id)):
                raise self.refused(f"the budget of the secret {secret.name} is used up")
        for secret in placed.used:
            self.use_of(secret.id).requests += 1
        self._used = placed.used
        return placed

    def _count(self, sent: int, received: int) -> None:
        """Raises ProxyError if a budget is used up by that."""
        self.count(sent, received)
        for secret in self._used:
            use = self.use_of(secret.id)
            use.bytes += sent + received
            if secret.most_bytes is not None and use.bytes > secret.most_bytes:
                raise self.refused(f"the budget of the secret {secret.name} is used up")

    async def _send_body(self, server: _Peer) -> None:
        while True:
            event = await self._program.event()
            if isinstance(event, h11.Data):
                self._count(len(event.data), 0)
                await server.send(h11.Data(data=event.data))
            elif isinstance(event, h11.EndOfMessage):
                return await server.send(h11.EndOfMessage())
            else:
                raise ConnectionResetError("the program has closed the connection")

    async def _send_answer(self, server: _Peer, placed: Placed) -> bool:
        """Returns whether both speak another protocol from now on."""
        guard = EchoGuard(placed.traces)
        while True:
            event = await server.event(passed_to=self._program)
            if isinstance(event, h11.InformationalResponse | h11.Response):
                headers = _checked(event, guard)
                is_last = server.http.their_state is h11.MUST_CLOSE or _closes(event)
                if is_last and isinstance(event, h11.Response):
                    headers.append((b"Connection", b"close"))
                if event.status_code == _SWITCHING:
                    headers += [(b"Connection", b"upgrade"), (b"Upgrade", _WEB_SOCKET)]
                self._program.add(
                    type(event)(status_code=event.status_code, headers=headers, reason=event.reason)
                )
                if event.status_code == _SWITCHING:
                    await self._program.flush()
                    return True
            elif isinstance(event, h11.Data):
                self._count(0, len(event.data))
                if passed := guard.passed(bytes(event.data)):
                    self._program.add(h11.Data(data=passed))
            elif isinstance(event, h11.EndOfMessage):
                if rest := guard.rest():
                    self._program.add(h11.Data(data=rest))
                await self._program.send(h11.EndOfMessage())
                return False
            else:
                raise ConnectionResetError("the host has closed the connection")

    async def _tunnel(self, server: _Peer, guard: EchoGuard) -> None:
        """Until one of them closes it."""
        out = asyncio.ensure_future(self._copy(self._program, server, None))
        back = asyncio.ensure_future(self._copy(server, self._program, guard))
        async with _together(out, back):
            pass

    async def _copy(self, source: _Peer, sink: _Peer, guard: EchoGuard | None) -> None:
        data = source.http.trailing_data[0] or await source.stream.read()
        while data:
            self._count(*((len(data), 0) if guard is None else (0, len(data))))
            await sink.stream.write(data if guard is None else guard.passed(data))
            data = await source.stream.read()

    async def _answer(self, status: int, message: str) -> None:
        """Unless an answer has begun; then it stays incomplete."""
        if self._program.http.our_state not in (h11.IDLE, h11.SEND_RESPONSE):
            return
        body = f"{message}\n".encode()
        headers = [("Content-Type", "text/plain"), ("Content-Length", str(len(body)))]
        headers.append(("Connection", "close"))
        with suppress(OSError, TimeoutError, h11.LocalProtocolError):
            await self._program.send(h11.Response(status_code=status, headers=headers))
            await self._program.send(h11.Data(data=body))
            await self._program.send(h11.EndOfMessage())


@asynccontextmanager
async def _together(*both: "asyncio.Future[Any]") -> AsyncIterator[None]:
    """Entered when one of them is done; both are over when it is left."""
    try:
        await asyncio.wait(both, return_when=asyncio.FIRST_COMPLETED)
        yield
    finally:
        for each in both:
            each.cancel()
        await asyncio.gather(*both, return_exceptions=True)


def _is_used_up(secret: BoundSecret, use: SecretUse) -> bool:
    budgets = ((secret.most_requests, use.requests), (secret.most_bytes, use.bytes))
    return any(most is not None and used >= most for most, used in budgets)


def _forwarded(request: h11.Request, host: str, port: int) -> list[tuple[str, str]]:
    """Its headers but those of its connection. Raises ProxyError."""
    names = [name for name, _ in request.headers]
    if b"content-length" in names and b"transfer-encoding" in names:
        raise ProxyError("send a Content-Length or a Transfer-Encoding, not both")
    named = set()
    for name, value in request.headers:
        if name == b"connection":
            named |= {word.strip().lower() for word in value.split(b",")}
        if name == b"host" and value.lower() not in _authorities(host, port):
            raise ProxyError(f"this connection is for {host} alone", 421)
    kept = {b"content-length", b"transfer-encoding", b"host"}
    dropped = _OF_CONNECTIONS | named - kept
    return [
        (name.decode(), value.decode("latin-1"))
        for name, value in request.headers.raw_items()
        if name.lower() not in dropped
    ]


def _authorities(host: str, port: int) -> tuple[bytes, ...]:
    return host.encode(), f"{host}:{port}".encode(), f"{host}.".encode()


def _request_of(request: h11.Request, placed: Placed) -> h11.Request:
    headers = [(name.encode(), value.encode("latin-1")) for name, value in placed.headers]
    if not any(name.lower() == b"host" for name, _ in headers):
        raise ProxyError("it has no Host")
    if placed.used:  # what repeats the value is then found
        headers = [each for each in headers if each[0].lower() != b"accept-encoding"]
        headers.append((b"Accept-Encoding", b"identity"))
    if _upgrades(request):
        headers += [(b"Connection", b"upgrade"), (b"Upgrade", _WEB_SOCKET)]
    target = placed.target.encode("latin-1")
    return h11.Request(method=request.method, target=target, headers=headers)


def _upgrades(request: h11.Request) -> bool:
    found = [value.strip().lower() for name, value in request.headers if name == b"upgrade"]
    return found == [_WEB_SOCKET] and request.method == b"GET"


def _checked(
    answer: h11.Response | h11.InformationalResponse, guard: EchoGuard
) -> list[tuple[bytes, bytes]]:
    """Its headers but those of its connection. Raises EchoedError."""
    guard.passed(b"\n".join([*(value for _, value in answer.headers), answer.reason, b""]))
    return [each for each in answer.headers.raw_items() if each[0].lower() not in _OF_CONNECTIONS]


def _closes(answer: h11.Response | h11.InformationalResponse) -> bool:
    words = [value.lower() for name, value in answer.headers if name == b"connection"]
    return answer.http_version < b"1.1" or any(b"close" in each for each in words)
