"""In-process calls to the server's own API, with a viewer's credential."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlencode

import orjson
from starlette.requests import HTTPConnection
from starlette.types import ASGIApp, Message, Scope

Query = Mapping[str, str | int | None]


_NOT_FOUND = 404


class ApiError(Exception):
    """The API answered with an error; a page shows its message, code and request id."""

    def __init__(self, status: int, error: Mapping[str, Any]) -> None:
        super().__init__(error.get("message", ""))
        self.status = status
        self.code = str(error.get("code", "UNKNOWN"))
        self.message = _for_people(error)
        self.request_id = str(error.get("request_id", ""))
        self.details: Mapping[str, Any] = error.get("details") or {}


def _for_people(error: Mapping[str, Any]) -> str:
    """The message; a reference to the field with the wait is replaced by its value."""
    message = str(error.get("message", "The server gave no reason."))
    return message.replace("`retry_after`", str(error.get("retry_after", "some")))


@dataclass(frozen=True, slots=True)
class ApiPaths:
    """The paths of the parts' calls."""

    platform: str = "/api/v1"
    broker: str = "/v1"
    telemetry: str = "/telemetry/v1"


@dataclass(frozen=True, slots=True)
class OwnTokens:
    """The tokens for the parts' endpoints, for operators and admin accounts."""

    broker_admin: Sequence[str] = ()
    broker_track: Sequence[str] = ()
    telemetry_admin: Sequence[str] = ()


class Credentials:
    """The headers for calling a path of the API on behalf of a viewer."""

    def __init__(self, paths: ApiPaths, tokens: OwnTokens) -> None:
        self.paths = paths
        self._tokens = tokens

    def headers(self, path: str, *, login: str | None, is_operator: bool) -> dict[str, str]:
        token = self._token(path, login=login, is_operator=is_operator)
        return {} if token is None else {"authorization": f"Bearer {token}"}

    def _token(self, path: str, *, login: str | None, is_operator: bool) -> str | None:
        if path.startswith(self.paths.platform + "/"):
            return login
        if not is_operator:
            return None
        if path.startswith(self.paths.broker + "/admin"):
            return _first(self._tokens.broker_admin)
        if path.startswith(self.paths.telemetry + "/"):
            return _first(self._tokens.telemetry_admin)
        return _first(self._tokens.broker_track)


def _first(tokens: Sequence[str]) -> str | None:
    return tokens[0] if tokens else None


class Api:
    """The API on behalf of one viewer. Every call raises ApiError for an error response."""

    def __init__(
        self,
        app: ASGIApp,
        request: HTTPConnection,
        credentials: Credentials,
        *,
        login: str | None,
        is_operator: bool,
    ) -> None:
        self._app = app
        self._request = request
        self._credentials = credentials
        self._login = login
        self._is_operator = is_operator

    @property
    def paths(self) -> ApiPaths:
        return self._credentials.paths

    async def get(self, path: str, /, **query: str | int | None) -> Any:
        return await self.call("GET", path, query=query)

    async def find(self, path: str, /, **query: str | int | None) -> Any | None:
        """The same; None if not found."""
        try:
            return await self.get(path, **query)
        except ApiError as error:
            if error.status == _NOT_FOUND:
                return None
            raise

    async def post(self, path: str, /, body: Any = None, **headers: str) -> Any:
        return await self.call("POST", path, body=body, headers=headers)

    async def call(
        self,
        method: str,
        path: str,
        *,
        query: Query | None = None,
        body: Any = None,
        headers: Mapping[str, str] | None = None,
    ) -> Any:
        """The response's JSON; None if it has none."""
        credential = self._credentials.headers(
            path, login=self._login, is_operator=self._is_operator
        )
        sent = {name.replace("_", "-"): value for name, value in (headers or {}).items()}
        if body is not None:
            sent["content-type"] = "application/json"
        scope = _scope(self._request, method, path, query or {}, credential | sent)
        status, answer = await _exchange(
            self._app, scope, b"" if body is None else orjson.dumps(body)
        )
        content = orjson.loads(answer) if answer else None
        if status >= 400:
            raise ApiError(status, (content or {}).get("error", {}))
        return content


def _scope(
    request: HTTPConnection, method: str, path: str, query: Query, headers: Mapping[str, str]
) -> Scope:
    given = {name: value for name, value in query.items() if value not in (None, "")}
    outer = request.scope
    return {
        **outer,
        "type": "http",
        "method": method,
        "path": path,
        "raw_path": path.encode(),
        "root_path": "",
        "query_string": urlencode(given).encode(),
        "headers": [
            *_passed_on(outer),
            *((name.encode(), value.encode()) for name, value in headers.items()),
        ],
        "state": {**outer["state"], "status": 0, "log": {}},
    }


def _passed_on(scope: Scope) -> list[tuple[bytes, bytes]]:
    """Headers with the origin of a request, for limits by address."""
    names = {b"host", b"user-agent", b"x-forwarded-for"}
    return [header for header in scope["headers"] if header[0] in names]


async def _exchange(app: ASGIApp, scope: Scope, body: bytes) -> tuple[int, bytes]:
    pieces: list[bytes] = []

    async def receive() -> Message:
        return {"type": "http.request", "body": body, "more_body": False}

    async def send(message: Message) -> None:
        if message["type"] == "http.response.start":
            scope["state"]["status"] = message["status"]
        else:
            pieces.append(message.get("body", b""))

    await app(scope, receive, send)
    return scope["state"]["status"], b"".join(pieces)
