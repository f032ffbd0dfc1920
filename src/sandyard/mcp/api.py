"""The server's HTTP API, as tools call it: with the caller's credential, from inside or outside."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol
from urllib.parse import quote, urlencode

import httpx
import orjson
from mcp.server.mcpserver.exceptions import ToolError
from starlette.types import ASGIApp, Scope

from sandyard.kit.http.inner_calls import InnerResponse, exchange, origin_headers, scope_within

Query = Mapping[str, str | int | None]

BROKER_TOKEN = "x-broker-token"  # noqa: S105 - the name of a header
"""The header of a request to `/mcp` with a Broker client's token, beside an API key."""

_ADVICE = {
    401: "The credential is missing, wrong or revoked: configure this MCP server with a valid one.",
    403: "This key may not do that: ask its owner for one with a wider scope.",
    404: "Check the id or path; list what there is first.",
    429: "Wait, or stop and delete what is not needed any more, then try again.",
    503: "The server or what it needs is away for now: try again with the same arguments.",
}


class Api(Protocol):
    """Raises ToolError if the server can't be reached; returns every response."""

    async def send(
        self, method: str, path: str, query: str, headers: Mapping[str, str], body: bytes
    ) -> InnerResponse: ...


@dataclass(frozen=True, slots=True)
class InnerApi:
    """From inside the server, in the name of the client's request."""

    app: ASGIApp
    request: Scope

    async def send(
        self, method: str, path: str, query: str, headers: Mapping[str, str], body: bytes
    ) -> InnerResponse:
        sent = [(name.lower().encode(), value.encode()) for name, value in headers.items()]
        inner = [*origin_headers(self.request), *self._credentials(path), *sent]
        scope = scope_within(self.request, method, path, query_string=query.encode(), headers=inner)
        return await exchange(self.app, scope, body)

    def _credentials(self, path: str) -> list[tuple[bytes, bytes]]:
        given = dict(self.request["headers"])
        bearer = given.get(b"authorization", b"")
        token = given.get(BROKER_TOKEN.encode())
        is_for_broker = not path.startswith(("/api/", "/e2b/"))
        return [(b"authorization", b"Bearer " + token if token and is_for_broker else bearer)]


@dataclass(frozen=True, slots=True)
class HttpApi:
    """From another process, over HTTP."""

    client: httpx.AsyncClient
    api_key: str | None = field(repr=False)
    broker_token: str | None = field(repr=False)

    async def send(
        self, method: str, path: str, query: str, headers: Mapping[str, str], body: bytes
    ) -> InnerResponse:
        credential = self.api_key if path.startswith(("/api/", "/e2b/")) else self.broker_token
        own = {"Authorization": f"Bearer {credential}"} if credential else {}
        try:
            answer = await self.client.request(
                method, f"{path}?{query}", headers={**own, **headers}, content=body
            )
        except httpx.HTTPError as error:
            raise ToolError(
                f"The server at {self.client.base_url} was not reached ({error or type(error)}). "
                "It may have acted on the call: repeat it with the same arguments."
            ) from error
        return InnerResponse(answer.status_code, answer.headers.raw, answer.content)


@dataclass(frozen=True, slots=True)
class Calls:
    """Calls by the names of parts: `platform/…`, `broker/…` and `e2b/…`."""

    api: Api
    broker_path: str = "/v1"

    async def json(
        self,
        method: str,
        path: str,
        *,
        body: Any = None,
        query: Query | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> Any:
        """The response's JSON. Raises ToolError for an error response."""
        sent = dict(headers or {})
        if body is not None:
            sent["content-type"] = "application/json"
        content = b"" if body is None else orjson.dumps(body)
        answer = await self.send(method, path, content, query=query, headers=sent)
        return orjson.loads(answer.body) if answer.body else None

    async def send(
        self,
        method: str,
        path: str,
        body: bytes = b"",
        *,
        query: Query | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> InnerResponse:
        part, _, rest = path.partition("/")
        prefix = {"platform": "/api/v1", "broker": self.broker_path, "e2b": "/e2b"}[part]
        given = {name: value for name, value in (query or {}).items() if value is not None}
        answer = await self.api.send(
            method, f"{prefix}/{rest}", urlencode(given), headers or {}, body
        )
        if answer.status >= 400:
            raise CallFailedError(answer)
        return answer


class CallFailedError(ToolError):
    """The cause as the API says it, and what to do next."""

    def __init__(self, answer: InnerResponse) -> None:
        error = _error_of(answer.body)
        self.status = answer.status
        self.code = str(error.get("code", answer.status))
        parts = [f"{self.code}: {error.get('message', 'the server gave no reason')}"]
        if details := error.get("details"):
            parts.append(f"Details: {orjson.dumps(details).decode()}")
        if retry_after := error.get("retry_after"):
            parts.append(f"Try again in {retry_after} s.")
        if advice := _ADVICE.get(answer.status):
            parts.append(advice)
        super().__init__(" ".join(parts))


def _error_of(body: bytes) -> Mapping[str, Any]:
    """In the API's shape, or in E2B's."""
    try:
        content = orjson.loads(body)
    except orjson.JSONDecodeError:
        return {}
    error = content.get("error", content) if isinstance(content, dict) else {}
    return error if isinstance(error, dict) else {}


def segment(value: str) -> str:
    """An id from a model, as one segment of a path."""
    return quote(value, safe="")
