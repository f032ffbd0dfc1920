"""`/mcp`: the MCP server over streamable HTTP, without sessions: any replica serves any call."""

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit

import orjson
from mcp.server.mcpserver import Context
from mcp.server.streamable_http_manager import StreamableHTTPSessionManager
from mcp.server.transport_security import TransportSecuritySettings
from starlette.requests import Request
from starlette.responses import Response
from starlette.types import ASGIApp, Receive, Scope, Send

from sandyard.kit.errors import ForbiddenError, NotFoundError, UnauthorizedError
from sandyard.kit.http.inner_calls import exchange, origin_headers, scope_within
from sandyard.mcp.api import BROKER_TOKEN, Calls, InnerApi
from sandyard.mcp.paths import METADATA, PATH
from sandyard.mcp.server import build_server

_UNAUTHORIZED = 401
_LOOPBACK = frozenset({"localhost", "127.0.0.1", "::1"})
_ANY_HOST = TransportSecuritySettings(enable_dns_rebinding_protection=False)
"""Every request has a credential that no browser adds by itself, and pages of others are refused
by their `Origin`, whatever name they have given this server."""


@dataclass(frozen=True, slots=True)
class OAuthMetadata:
    """Where clients get access tokens for `/mcp` (RFC 9728)."""

    resource: str
    issuers: tuple[str, ...]

    def body(self) -> Mapping[str, Any]:
        return {
            "resource": self.resource,
            "authorization_servers": list(self.issuers),
            "bearer_methods_supported": ["header"],
        }


class McpApp:
    """`api` serves the paths of all parts, and E2B's API below `/e2b`. Refusals are raised."""

    def __init__(
        self,
        api: ASGIApp,
        *,
        broker_path: str,
        most_bytes: int,
        metadata: OAuthMetadata | None,
        public_url: str | None,
    ) -> None:
        self._api = api
        self._own_origin = urlsplit(public_url)[:2] if public_url else None
        self._broker_path = broker_path
        self._metadata = metadata
        self._most_bytes = most_bytes
        self._starting = asyncio.Lock()
        self._requests: ASGIApp | None = None

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["path"] != PATH and scope["path"].startswith(METADATA):
            await self._describe()(scope, receive, send)
            return
        if not self._may_ask(scope):
            raise ForbiddenError("A web page of another site may not call this server.")
        if not await self._is_authenticated(scope):
            raise self._refusal()
        requests = self._requests or await self._start()
        await requests(scope, receive, send)

    def _describe(self) -> Response:
        if self._metadata is None:
            raise NotFoundError
        return Response(orjson.dumps(self._metadata.body()), media_type="application/json")

    def _may_ask(self, scope: Scope) -> bool:
        """Browsers name the page that asks: one of this machine, or of this server."""
        sent = dict(scope["headers"]).get(b"origin")
        if sent is None:
            return True
        try:
            origin = urlsplit(sent.decode("latin-1"))
        except ValueError:
            return False
        return origin[:2] == self._own_origin or origin.hostname in _LOOPBACK

    def _refusal(self) -> UnauthorizedError:
        message = "Send `Authorization: Bearer` with an API key, or with a client's token."
        error = UnauthorizedError(message)
        found = (
            f', resource_metadata="{self._metadata.resource.removesuffix(PATH)}{METADATA}{PATH}"'
            if self._metadata
            else ""
        )
        error.scheme = f'Bearer realm="sandyard"{found}'
        return error

    async def _is_authenticated(self, scope: Scope) -> bool:
        """By the Platform, or by the Broker, whose calls a client's token opens."""
        given = dict(scope["headers"])
        bearer = given.get(b"authorization", b"")
        token = given.get(BROKER_TOKEN.encode())
        if not bearer.lower().startswith(b"bearer ") and token is None:
            return False
        for path, credential in (
            ("/api/v1/me", bearer),
            (f"{self._broker_path}/sandboxes/unknown", b"Bearer " + token if token else bearer),
        ):
            headers = [
                *origin_headers(scope),
                (b"authorization", credential),
                (b"x-track-id", b"mcp"),
            ]
            inner = scope_within(scope, "GET", path, query_string=b"", headers=headers)
            if (await exchange(self._api, inner)).status != _UNAUTHORIZED:
                return True
        return False

    async def _start(self) -> ASGIApp:
        """Its tasks belong to one task of their own, which ends with the process."""
        async with self._starting:
            if self._requests is None:
                server = build_server(self._calls_of)
                requests = server.streamable_http_app(
                    streamable_http_path=PATH,
                    json_response=True,
                    stateless_http=True,
                    max_request_body_size=self._most_bytes,
                    transport_security=_ANY_HOST,
                )
                started = asyncio.Event()
                self._task = asyncio.create_task(_run(server.session_manager, started))
                await started.wait()
                self._requests = requests
        return self._requests

    def _calls_of(self, context: Context[Any]) -> Calls:
        request: Request = context.request_context.request  # type: ignore[assignment]
        return Calls(InnerApi(self._api, request.scope), self._broker_path)


async def _run(manager: StreamableHTTPSessionManager, started: asyncio.Event) -> None:
    async with manager.run():
        started.set()
        await asyncio.Future()
