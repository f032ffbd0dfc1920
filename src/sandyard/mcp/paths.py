"""The paths of MCP; imported by every server, long before MCP is used."""

from starlette.types import Scope

PATH = "/mcp"
METADATA = "/.well-known/oauth-protected-resource"


def is_for_mcp(scope: Scope) -> bool:
    path: str = scope["path"]
    return path.rstrip("/") == PATH or path in (METADATA, f"{METADATA}{PATH}")
