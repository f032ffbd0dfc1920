"""`/console/api/…`: forwards requests of a page to the API with the viewer's credential.

For requests that a page's scripts make: streams, uploads, downloads and terminals.
"""

from starlette.requests import HTTPConnection
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from sandyard.console.api import Credentials
from sandyard.console.viewer import Viewer

PREFIX = "/console/api"
_OURS = frozenset({b"cookie", b"authorization", b"x-api-key"})


class ApiProxy:
    def __init__(self, app: ASGIApp, credentials: Credentials) -> None:
        self._app = app
        self._credentials = credentials

    async def __call__(
        self, viewer: Viewer, request: HTTPConnection, receive: Receive, send: Send
    ) -> None:
        scope = request.scope
        path = str(scope["path"]).removeprefix(PREFIX)
        credential = self._credentials.headers(
            path, login=viewer.login, is_operator=viewer.is_operator
        )
        inner: Scope = {
            **scope,
            "path": path,
            "raw_path": path.encode(),
            "headers": [
                *(header for header in scope["headers"] if header[0] not in _OURS),
                *((name.encode(), value.encode()) for name, value in credential.items()),
            ],
        }
        await self._app(inner, receive, _noting_status(scope, send))


def _noting_status(scope: Scope, send: Send) -> Send:
    async def send_noting(message: Message) -> None:
        if message["type"] == "http.response.start":
            scope["state"]["status"] = message["status"]
        await send(message)

    return send_noting
