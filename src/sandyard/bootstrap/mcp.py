"""MCP, wired to the server's own API."""

from starlette.types import ASGIApp, Receive, Scope, Send

from sandyard.bootstrap.other_logs import MainProcess, api_of_all_parts
from sandyard.mcp.app import McpApp, OAuthMetadata
from sandyard.mcp.paths import PATH
from sandyard.settings import Settings


def build_mcp(
    settings: Settings, api: ASGIApp, e2b: ASGIApp, *, main: MainProcess | None
) -> McpApp:
    parts = api_of_all_parts(api, main)

    async def call(scope: Scope, receive: Receive, send: Send) -> None:
        await (e2b if scope["path"].startswith("/e2b/") else parts)(scope, receive, send)

    return McpApp(
        call,
        broker_path=settings.broker.api_base_path,
        most_bytes=settings.server.max_body_bytes,
        metadata=_metadata(settings),
        public_url=settings.platform.public_url,
    )


def _metadata(settings: Settings) -> OAuthMetadata | None:
    """Access tokens open the Broker's calls, if there is an issuer of them."""
    issuer, address = settings.oauth.auth_issuer, settings.platform.public_url
    if issuer is None or address is None:
        return None
    return OAuthMetadata(f"{address.rstrip('/')}{PATH}", (issuer,))
