"""Error responses of the gateway, as the client prefers: a small page for a browser, else JSON."""

import base64
import hashlib
import html
from typing import Any

from starlette.requests import HTTPConnection
from starlette.responses import Response
from starlette.types import ASGIApp, Receive, Scope, Send

from sandyard.entrypoints.http.answers import BROKEN_OFF
from sandyard.entrypoints.http.errors import deny, error_response, known_error
from sandyard.gateway.errors import (
    AddressUnknownError,
    PortNotListeningError,
    TargetNotRunningError,
    TrafficTokenError,
    TrafficTokenWrongError,
)
from sandyard.gateway.model import SandboxDomain
from sandyard.kit.errors import SandyardError
from sandyard.kit.http.access_watch import AccessWatch
from sandyard.kit.http.error_statuses import status_of
from sandyard.kit.http.security import values_of

_STYLE = """body{font:16px/1.5 system-ui,sans-serif;max-width:34rem;margin:20vh auto;padding:0 1rem}
small{color:#666}"""
_PAGE = """<!doctype html>
<html lang="en"><meta charset="utf-8"><meta name="viewport" content="width=device-width">
<title>{title}</title>
<style>{style}</style>
<h1>{message}</h1>
<p><small>{code} · {request_id}</small></p>
"""
_STYLE_HASH = base64.b64encode(hashlib.sha256(_STYLE.encode()).digest()).decode()
_POLICY = f"default-src 'none'; style-src 'sha256-{_STYLE_HASH}'; frame-ancestors *"


_TO_E2B: dict[type[SandyardError], str] = {
    PortNotListeningError: "The sandbox is running but port is not open",
    TargetNotRunningError: "The sandbox was not found",
    AddressUnknownError: "The sandbox was not found",
}
"""E2B's own messages for some errors."""
_TITLES: dict[type[SandyardError], str] = {
    PortNotListeningError: "Closed Port Error",
    TrafficTokenError: "Missing Traffic Access Token",
    TrafficTokenWrongError: "Invalid Traffic Access Token",
}
"""Page titles that match E2B's."""


def names_host_below(domain: SandboxDomain, scope: Scope) -> bool:
    return any(domain.has(host) for host in values_of(scope["headers"], b"host"))


class GatewayErrors:
    """Handles errors that the gateway raises before the program has responded; after that it can
    only close the connection."""

    def __init__(self, gateway: ASGIApp) -> None:
        self._gateway = gateway

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            async with AccessWatch(scope):
                await self._gateway(scope, receive, send)
        except Exception as error:
            request = HTTPConnection(scope)
            known = known_error(request, error)
            if scope["state"]["status"]:
                request.state.outcome = BROKEN_OFF
                raise
            response = _response(known, request)
            if scope["type"] == "websocket":
                await deny(response, send)
            else:
                await response(scope, receive, send)


def _e2b_error_fields(error: SandyardError, request: HTTPConnection) -> dict[str, Any]:
    """The fields that E2B's clients read at a sandbox's port."""
    named = request.scope["state"].get("log", {})
    message = _TO_E2B.get(type(error), error.message)
    details = {"sandboxId": named.get("target_id"), "port": named.get("port"), "message": message}
    return {"code": status_of(error), **details} if named.get("target_id") else {}


def _is_shown(request: HTTPConnection) -> bool:
    """Whether a person sees the response: a browser that states no preference gets a page, as with
    E2B."""
    accepted = request.headers.get("accept", "")
    is_browser = request.headers.get("user-agent", "").startswith("Mozilla/")
    return "text/html" in accepted or (is_browser and accepted in ("", "*/*"))


def _response(error: SandyardError, request: HTTPConnection) -> Response:
    request_id = str(request.scope["state"]["request_id"])
    if not _is_shown(request):
        return error_response(error, request_id, beside=_e2b_error_fields(error, request))
    page = _PAGE.format(
        style=_STYLE,
        title=_TITLES.get(type(error), f"{status_of(error)} {error.code}"),
        code=error.code,
        message=html.escape(error.message),
        request_id=html.escape(request_id),
    )
    headers = {"Content-Security-Policy": _POLICY}
    if error.retry_after is not None:
        headers["Retry-After"] = str(error.retry_after)
    return Response(page, status_of(error), headers=headers, media_type="text/html")
