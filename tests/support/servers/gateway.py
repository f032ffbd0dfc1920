"""The gateway on a real server, before sandboxes of the tests, and a client that speaks to it."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import timedelta
from functools import partial
from typing import Any

import h11
from prometheus_client import CollectorRegistry
from starlette.applications import Starlette

from sandyard.entrypoints.http.answers import ErrorResponses
from sandyard.entrypoints.http.errors import WebSocketErrors
from sandyard.entrypoints.http.gateway_errors import GatewayErrors, names_host_below
from sandyard.entrypoints.http.middleware import (
    GATEWAY,
    Applications,
    HostedApp,
    InFlight,
    RequestMetrics,
    RequestMiddleware,
)
from sandyard.entrypoints.server.listeners import Listener
from sandyard.gateway.access import GatewayAccess
from sandyard.gateway.app import Gateway, GatewayLimits
from sandyard.gateway.model import Grant, PageScope, SandboxDomain
from sandyard.gateway.tokens import AccessTokens
from sandyard.kit import ids
from sandyard.kit.clock import utc_time
from sandyard.kit.free_ports import free_port
from sandyard.kit.http.bodies import BodyLimit, BodyLimits
from sandyard.kit.http.client_address import ClientAddress
from sandyard.kit.http.routes import DirectRoutes
from tests.fakes.gateway_targets import Boxes, Owner, Owners
from tests.support.clocks import RunningClock

OWNER = "100000000000"
STRANGER = "200000000000"
BOX = "sbx-1m4p7s0v3y6b9e2hk"
OTHER_BOX = "sbx-9z9z9z9z9z9z9z9z9"
PREVIEW = "prj-4k8s0m2q6w1c9x7ab"


@dataclass
class GatewayServer:
    port: int
    domain: SandboxDomain
    boxes: Boxes
    owners: Owners
    tokens: AccessTokens
    clock: RunningClock
    gateway: Gateway

    def host(self, target_id: str = BOX, port: int = 3000) -> str:
        return f"{port}-{target_id}.localhost:{self.port}"

    def token(self, target_id: str = BOX, **changes: Any) -> str:
        fields: dict[str, Any] = {
            "target_id": target_id,
            "account_id": OWNER,
            "token_version": 0,
            "scopes": frozenset({PageScope.VIEW}),
            "expires_at": utc_time(self.clock.now()) + timedelta(minutes=5),
        }
        return self.tokens.issue(Grant(**fields | changes))

    async def request(
        self, method: str = "GET", path: str = "/", *, host: str | None = None, **options: Any
    ) -> "Answer":
        return await request(self.port, method, path, host=host or self.host(), **options)


@asynccontextmanager
async def gateway_server(
    *, timeout_sec: float = 20, connections: int = 100, held_bytes: int = 64 << 20
) -> AsyncIterator[GatewayServer]:
    port, clock = free_port(), RunningClock()
    domain = SandboxDomain("http", "localhost", port)
    boxes, owners = Boxes(), Owners({OWNER: Owner(), STRANGER: Owner()})
    tokens = AccessTokens(["k" * 40])
    gateway = Gateway(
        {"sbx": boxes, "prj": boxes},
        GatewayAccess(tokens, owners, domain, clock=clock),
        domain,
        GatewayLimits(timeout_sec, connections, held_bytes),
        client_address=ClientAddress().of,
    )
    listener = Listener(_entry(gateway, domain), host="127.0.0.1", port=port)
    await listener.start()
    try:
        yield GatewayServer(port, domain, boxes, owners, tokens, clock, gateway)
    finally:
        await listener.stop()


def _entry(gateway: Gateway, domain: SandboxDomain) -> RequestMiddleware:
    api = ErrorResponses(Starlette(), limits=BodyLimits(BodyLimit(1000, 30)))
    apps = Applications(
        None,
        api,
        DirectRoutes([], with_origin=True),
        api,
        WebSocketErrors(api),
        hosted=[HostedApp(partial(names_host_below, domain), GatewayErrors(gateway), GATEWAY)],
    )
    return RequestMiddleware(
        apps,
        metrics=RequestMetrics(CollectorRegistry()),
        in_flight=InFlight(),
        make_request_id=ids.request_id,
        send_request_id=True,
    )


@dataclass
class Answer:
    status: int
    headers: list[tuple[bytes, bytes]]
    body: bytes
    is_whole: bool = True
    early: list[int] = field(default_factory=list)
    """The statuses that came before it, such as 100."""

    def header(self, name: str) -> str | None:
        found = [value.decode() for key, value in self.headers if key == name.encode()]
        return ", ".join(found) if found else None


async def request(
    port: int,
    method: str,
    path: str,
    *,
    host: str,
    headers: Sequence[tuple[str, str]] = (),
    body: bytes = b"",
) -> Answer:
    """By hand, for `*.localhost` need not be a name that the system resolves."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    wire = h11.Connection(h11.CLIENT)
    sent = [("Host", host), *headers]
    if body:
        sent.append(("Content-Length", str(len(body))))
    writer.write(wire.send(h11.Request(method=method, target=path, headers=sent)) or b"")
    if body:
        writer.write(body)
    try:
        return await read_answer(reader, wire)
    finally:
        writer.close()


async def read_answer(reader: asyncio.StreamReader, wire: h11.Connection) -> Answer:
    answer = Answer(0, [], b"", is_whole=False)
    pieces: list[bytes] = []
    async with asyncio.timeout(60):
        while not answer.is_whole:
            event = wire.next_event()
            if event is h11.NEED_DATA:
                data = await reader.read(1 << 18)
                try:
                    wire.receive_data(data)
                    if not data:
                        event = wire.next_event()
                except h11.RemoteProtocolError:
                    break
            if isinstance(event, h11.InformationalResponse):
                answer.early.append(event.status_code)
            elif isinstance(event, h11.Response):
                answer.status, answer.headers = event.status_code, list(event.headers)
            elif isinstance(event, h11.Data):
                pieces.append(bytes(event.data))
            elif isinstance(event, h11.EndOfMessage):
                answer.is_whole = True
            elif isinstance(event, h11.ConnectionClosed):
                break
    answer.body = b"".join(pieces)
    return answer
