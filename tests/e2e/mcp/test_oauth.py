"""An agent that logs in by OAuth, as MCP's own client does it, and pages that may not call."""

import base64
import hashlib
import json
import secrets
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlencode, urlsplit

import httpx
import httpx2
import jwt
import pytest
from aiohttp import web
from cryptography.hazmat.primitives.asymmetric import ec
from mcp import Client
from mcp.client.auth import AuthorizationCodeResult, OAuthClientProvider
from mcp.client.streamable_http import streamable_http_client
from mcp.shared.auth import OAuthClientInformationFull, OAuthClientMetadata, OAuthToken
from pydantic import AnyUrl

from sandyard.kit.free_ports import free_port
from tests.support.servers.processes import ServerProcess, sandyard_serve

_BACK = "http://127.0.0.1:1/callback"


@dataclass
class AuthorizationServer:
    """Registers clients, and gives access tokens for codes with PKCE."""

    url: str = ""
    resources: list[str] = field(default_factory=list)
    """What tokens were asked for."""
    _codes: dict[str, dict[str, str]] = field(default_factory=dict)
    _key: Any = field(default_factory=lambda: ec.generate_private_key(ec.SECP256R1()))

    async def describe(self, _request: web.Request) -> web.Response:
        return web.json_response(
            {
                "issuer": self.url,
                "authorization_endpoint": f"{self.url}/authorize",
                "token_endpoint": f"{self.url}/token",
                "registration_endpoint": f"{self.url}/register",
                "jwks_uri": f"{self.url}/keys",
                "response_types_supported": ["code"],
                "code_challenge_methods_supported": ["S256"],
            }
        )

    async def keys(self, _request: web.Request) -> web.Response:
        shown = json.loads(jwt.get_algorithm_by_name("ES256").to_jwk(self._key.public_key()))
        return web.json_response({"keys": [shown | {"kid": "one", "alg": "ES256"}]})

    async def register(self, request: web.Request) -> web.Response:
        return web.json_response(await request.json() | {"client_id": "agent"}, status=201)

    def authorize(self, url: str) -> AuthorizationCodeResult:
        """As a browser whose user agrees."""
        sent = {name: each[0] for name, each in parse_qs(urlsplit(url).query).items()}
        assert sent["code_challenge_method"] == "S256"
        self.resources.append(sent["resource"])
        code = secrets.token_urlsafe(8)
        self._codes[code] = sent
        return AuthorizationCodeResult(code=code, state=sent["state"])

    async def token(self, request: web.Request) -> web.Response:
        sent = await request.post()
        begun = self._codes.pop(str(sent["code"]))
        digest = hashlib.sha256(str(sent["code_verifier"]).encode()).digest()
        assert base64.urlsafe_b64encode(digest).rstrip(b"=").decode() == begun["code_challenge"]
        claims: dict[str, Any] = {"iss": self.url, "aud": begun["resource"], "scope": "allocate"}
        claims |= {"exp": 4_000_000_000, "client_id": "agent"}
        made = jwt.encode(claims, self._key, "ES256", headers={"kid": "one"})
        return web.json_response({"access_token": made, "token_type": "Bearer"})


@dataclass
class Stored:
    """`TokenStorage` in memory."""

    tokens: OAuthToken | None = None
    client: OAuthClientInformationFull | None = None

    async def get_tokens(self) -> OAuthToken | None:
        return self.tokens

    async def set_tokens(self, tokens: OAuthToken) -> None:
        self.tokens = tokens

    async def get_client_info(self) -> OAuthClientInformationFull | None:
        return self.client

    async def set_client_info(self, client_info: OAuthClientInformationFull) -> None:
        self.client = client_info


@pytest.fixture
async def issuer() -> AsyncIterator[AuthorizationServer]:
    server, app = AuthorizationServer(), web.Application()
    app.router.add_get("/.well-known/oauth-authorization-server", server.describe)
    app.router.add_get("/keys", server.keys)
    app.router.add_post("/register", server.register)
    app.router.add_post("/token", server.token)
    runner = web.AppRunner(app)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    server.url = f"http://127.0.0.1:{runner.addresses[0][1]}"
    yield server
    await runner.cleanup()


@asynccontextmanager
async def logged_in(server: ServerProcess, issuer: AuthorizationServer) -> AsyncIterator[Client]:
    visited: list[str] = []

    async def visit(url: str) -> None:
        visited.append(url)

    async def come_back() -> AuthorizationCodeResult:
        return issuer.authorize(visited[-1])

    metadata = OAuthClientMetadata(redirect_uris=[AnyUrl(_BACK)], client_name="agent")
    address = f"{server.url}/mcp"
    auth = OAuthClientProvider(address, metadata, Stored(), visit, come_back)
    async with (
        httpx2.AsyncClient(auth=auth, timeout=60) as http,
        Client(streamable_http_client(address, http_client=http)) as client,
    ):
        yield client


async def test_an_agent_logs_in_where_the_server_says(
    tmp_path: Path, issuer: AuthorizationServer
) -> None:
    port = free_port()
    resource = f"http://127.0.0.1:{port}/mcp"
    environment = {
        "PUBLIC_URL": f"http://127.0.0.1:{port}",
        "AUTH_ISSUER": issuer.url,
        "AUTH_JWKS_URL": f"{issuer.url}/keys",
        "AUTH_AUDIENCE": resource,
    }
    with sandyard_serve(tmp_path / "data", environment=environment, port=port) as server:
        async with logged_in(server, issuer) as agent:
            leased = await agent.call_tool("lease_sandbox", {"track": "by-login", "key": "one"})
            [content] = leased.content
            assert content.type == "text"
            assert not leased.is_error, content.text
            assert json.loads(content.text)["sandbox_id"]
        assert issuer.resources == [resource]
        _require_own_pages(server)


def _require_own_pages(server: ServerProcess) -> None:
    """A page elsewhere may have given this server its own name (DNS rebinding)."""
    for origin, status in (
        ("http://evil.example", 403),
        ("null", 403),
        ("http://localhost:6274", 401),
        (server.url, 401),
    ):
        headers = {"Origin": origin, "Host": "evil.example"}
        answer = httpx.post(f"{server.url}/mcp", headers=headers, json={}, timeout=60)
        assert answer.status_code == status, urlencode({"origin": origin})
