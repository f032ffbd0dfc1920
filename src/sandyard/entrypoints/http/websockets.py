"""WebSockets at our own paths: errors before the handshake use the common error format."""

from starlette.requests import HTTPConnection
from starlette.responses import Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from sandyard.entrypoints.http.errors import error_response, known_error
from sandyard.kit.errors import NotFoundError

_INTERNAL_ERROR = 1011


async def deny(response: Response, send: Send) -> None:
    """Refuse a handshake with an HTTP response."""
    start = {"status": response.status_code, "headers": response.raw_headers}
    await send({"type": "websocket.http.response.start", **start})
    await send({"type": "websocket.http.response.body", "body": response.body})


class WebSocketErrors:
    """Handles errors of a WebSocket endpoint: with an error response before the handshake, with a
    close after it. A path without an endpoint closes at once, which is reported as 404."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        async def send_or_deny(message: Message) -> None:
            is_refusal = message["type"] == "websocket.close" and not scope["state"]["status"]
            if is_refusal:
                raise NotFoundError("There is no WebSocket at this path.")
            await send(message)

        try:
            await self._app(scope, receive, send_or_deny)
        except Exception as error:
            known = known_error(HTTPConnection(scope), error)
            if scope["state"]["status"]:
                close = {"type": "websocket.close", "code": _INTERNAL_ERROR, "reason": known.code}
                await send(close)
            else:
                await deny(error_response(known, scope["state"]["request_id"]), send)
