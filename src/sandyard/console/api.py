"""In-process calls to the server's own API, with a viewer's credential."""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlencode

import orjson
from starlette.requests import HTTPConnection
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from sandyard.kit.http.inner_calls import exchange, origin_headers, scope_within

Query = Mapping[str, str | int | None]

_NOT_FOUND = 404
_NO_VALUES: Mapping[str, str] = {}
_CREDENTIALS = frozenset({b"cookie", b"authorization", b"x-api-key", b"x-operator"})


class ApiError(Exception):
    """The API answered with an error; a page shows its message, code and request id."""

    def __init__(self, status: int, error: Mapping[str, Any]) -> None:
        super().__init__(error.get("message", ""))
        self.status = status
        self.code = str(error.get("code", "UNKNOWN"))
        self.message = _for_people(error)
        self.request_id = str(error.get("request_id", ""))
        self.facts = _facts(error.get("details") or {})
        """The details, each with the name of what it is about."""


def _for_people(error: Mapping[str, Any]) -> str:
    """The message; a reference to the field with the wait is replaced by its value."""
    message = str(error.get("message", "The server gave no reason."))
    return message.replace("`retry_after`", str(error.get("retry_after", "some")))


def _facts(details: Mapping[str, Any]) -> list[tuple[str, str]]:
    mistakes = [
        (str(each.get("field") or each.get("in", "")), str(each.get("message", "")))
        for each in details.get("mistakes", ())
    ]
    others = ((name, value) for name, value in details.items() if name != "mistakes")
    return mistakes + [(name.replace("_", " "), _in_words(value)) for name, value in others]


def _in_words(value: Any) -> str:
    return value if isinstance(value, str) else orjson.dumps(value).decode()


@dataclass(frozen=True, slots=True)
class ApiPaths:
    platform: str = "/api/v1"
    broker: str = "/v1"
    telemetry: str = "/telemetry/v1"

    def of(self, call: str) -> str:
        """The path of a call that begins with its part, such as `platform/me`."""
        part, _, rest = call.partition("/")
        return f"{getattr(self, part)}/{rest}"


@dataclass(frozen=True, slots=True)
class OwnTokens:
    """The tokens for the parts' endpoints, for operators and admin accounts."""

    broker_admin: Sequence[str] = ()
    broker_track: Sequence[str] = ()
    telemetry_admin: Sequence[str] = ()


@dataclass(frozen=True, slots=True)
class Api:
    """The API on behalf of one viewer.

    A call is named by its part and path, such as `platform/projects/{project_id}`, with the page's
    own path parameters in braces. Every call raises ApiError for an error response.
    """

    app: ASGIApp
    request: HTTPConnection
    paths: ApiPaths
    tokens: OwnTokens
    login: str | None = None
    operates: frozenset[str] = frozenset()
    """The parts that the viewer may operate."""
    username: str | None = None
    """The operator's, if they have an account: they appear by it in the pool's events."""

    async def get(self, path: str, /, **query: str | int | None) -> Any:
        return await self.call("GET", path, query=query)

    async def find(self, path: str, /) -> Any | None:
        """None if not found."""
        try:
            return await self.get(path)
        except ApiError as error:
            if error.status == _NOT_FOUND:
                return None
            raise

    async def post(self, path: str, /, body: Any = None) -> Any:
        return await self.call("POST", path, body=body)

    async def call(
        self,
        method: str,
        path: str,
        *,
        query: Query | None = None,
        body: Any = None,
        headers: Mapping[str, str] | None = None,
        values: Mapping[str, str] = _NO_VALUES,
    ) -> Any:
        """The response's JSON; None if it has none. `values` are further path parameters."""
        known = defaultdict(str, values) | self.request.path_params
        path = self.paths.of(path.format_map(known))
        sent = self._credential(path) | dict(headers or {})
        if body is not None:
            sent["content-type"] = "application/json"
        scope = _scope(self.request, method, path, query or {}, sent)
        answer = await exchange(self.app, scope, b"" if body is None else orjson.dumps(body))
        content = orjson.loads(answer.body) if answer.body else None
        if answer.status >= 400:
            raise ApiError(answer.status, (content or {}).get("error", {}))
        return content

    async def forward(self, path: str, receive: Receive, send: Send) -> None:
        """Answer the page's request with the API's response at this path: for requests of scripts,
        such as streams, uploads, downloads and terminals."""
        outer = self.request.scope
        inner: Scope = {
            **outer,
            "path": path,
            "raw_path": path.encode(),
            "headers": [
                *(header for header in outer["headers"] if header[0] not in _CREDENTIALS),
                *_encoded(self._credential(path)),
            ],
        }

        async def send_noting_status(message: Message) -> None:
            if message["type"] == "http.response.start":
                outer["state"]["status"] = message["status"]
            await send(message)

        await self.app(inner, receive, send_noting_status)

    def _credential(self, path: str) -> dict[str, str]:
        """The headers for calling this path on behalf of the viewer."""
        tokens: Sequence[str] = ()
        named: dict[str, str] = {}
        if path.startswith(self.paths.platform + "/"):
            tokens = [self.login] if self.login else ()
        elif path.startswith(self.paths.telemetry + "/"):
            tokens = self.tokens.telemetry_admin if "telemetry" in self.operates else ()
        elif "broker" not in self.operates:
            return {}
        elif path.startswith(self.paths.broker + "/admin"):
            tokens = self.tokens.broker_admin
            named = {"x-operator": self.username} if self.username else {}
        else:
            tokens = self.tokens.broker_track
        return {"authorization": f"Bearer {tokens[0]}"} | named if tokens else {}


def _scope(
    request: HTTPConnection, method: str, path: str, query: Query, headers: Mapping[str, str]
) -> Scope:
    given = {name: value for name, value in query.items() if value not in (None, "")}
    return scope_within(
        request.scope,
        method,
        path,
        query_string=urlencode(given).encode(),
        headers=[*origin_headers(request.scope), *_encoded(headers)],
    )


def _encoded(headers: Mapping[str, str]) -> list[tuple[bytes, bytes]]:
    return [(name.encode(), value.encode()) for name, value in headers.items()]
