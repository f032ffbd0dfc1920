"""The control API: one router for the endpoints of all rooms."""

import asyncio
import math
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Annotated, Any, TypeVar

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    ValidationError,
    ValidationInfo,
)
from pydantic.alias_generators import to_camel
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.routing import Route, Router
from starlette.types import Receive, Send
from starlette.types import Scope as AsgiScope

from sandyard.e2b_api.envd.connect import json_response, object_of
from sandyard.e2b_api.envd.paths import path_of
from sandyard.e2b_api.errors import InvalidRequestError, NotOfferedError
from sandyard.kit.errors import NotFoundError, UnavailableError
from sandyard.kit.http.bodies import parse, read_body
from sandyard.kit.http.security import noticing_disconnect
from sandyard.kit.patterns import in_words
from sandyard.platform.access.guard import AccessGuard
from sandyard.platform.access.principal import Principal, Scope

MOST_LISTED = 100
_MOST_BYTES = "e2b.most_bytes"
"""The name of the limit of a body in an ASGI scope."""
Text = Annotated[str, Field(max_length=4096, pattern=r"^[^\x00]*$")]
Texts = Annotated[dict[Text, Text], Field(max_length=100)]
Handler = Callable[[Request, Principal], Awaitable[Response | None]]
"""None is a response without content."""
_NOT_OFFERED = frozenset({"secrets", "api-keys", "access-tokens", "nodes", "admin"})


_LARGEST = 10**9


def _bounded(value: Any) -> Any:
    is_number = type(value) in (int, float) and 0 <= value < math.inf
    return int(min(value, _LARGEST)) if is_number else value


Number = Annotated[int, Field(ge=0), BeforeValidator(_bounded)]
"""0 or more; fractions are cut off, and larger numbers than any time here are lowered."""


def _refuse(value: Any, field: ValidationInfo) -> None:
    if value:
        name = to_camel(str(field.field_name))
        raise NotOfferedError(f"This server does not offer `{name}` of E2B's API.")


NoEffect = Any
"""A field that SDKs send, and that changes nothing here; docs/e2b.md says why."""
Refused = Annotated[Any, AfterValidator(_refuse)]
"""A field that this server does not offer: it must be empty."""


class Body(BaseModel):
    """Unknown fields are refused, and no value is converted."""

    model_config = ConfigDict(alias_generator=to_camel, strict=True, frozen=True, extra="forbid")


class Query(BaseModel):
    model_config = ConfigDict(alias_generator=to_camel, frozen=True)


class PageQuery(Query):
    limit: int = Field(default=MOST_LISTED, ge=1, le=MOST_LISTED)
    next_token: str | None = None


T = TypeVar("T")
B = TypeVar("B", bound=Body)
Q = TypeVar("Q", bound=Query)


async def body_of(request: Request, model: type[B]) -> B:
    """Raises InvalidRequestError, BodyTooLargeError."""
    body = await read_body(request, most_bytes=request.scope[_MOST_BYTES])
    return await parse(partial(parsed, model=model), body)


async def unless_disconnected(request: Request, work: "asyncio.Future[T]") -> T:
    """The result of the work, which is cancelled if the caller disconnects, once its body is
    read. Raises ClientDisconnect."""
    is_gone = False

    def leave() -> None:
        nonlocal is_gone
        is_gone = work.cancel()

    async with noticing_disconnect(request, leave):
        try:
            return await work
        except asyncio.CancelledError:
            if is_gone:
                raise ClientDisconnect from None
            raise


def parsed(content: bytes, model: type[B]) -> B:
    object_of(content)
    try:
        return model.model_validate_json(content or b"{}")
    except ValidationError as error:
        raise _invalid(error) from error


def query_of(request: Request, model: type[Q]) -> Q:
    """Empty parameters count as missing, repeated ones as a list. Raises InvalidRequestError."""
    sent = request.query_params
    given = {name: ",".join(filter(None, sent.getlist(name))) for name in sent}
    try:
        return model.model_validate({name: value for name, value in given.items() if value})
    except ValidationError as error:
        raise _invalid(error) from error


def _invalid(error: ValidationError) -> InvalidRequestError:
    first = error.errors(include_url=False)[0]
    field = ".".join(str(each) for each in first["loc"])
    return InvalidRequestError(f"`{field}` is not valid: {in_words(first)}." if field else None)


@dataclass(frozen=True, slots=True)
class Endpoint:
    method: str
    path: str
    handler: Handler
    scope: Scope
    makes: bool = False
    """Whether it takes an `Idempotency-Key`."""


class ControlApi:
    """An ASGI application. Raises the errors of its endpoints, and NotOfferedError for other parts
    of E2B's API."""

    def __init__(
        self,
        guard: AccessGuard,
        endpoints: Sequence[Endpoint],
        public: Sequence[Route] = (),
        *,
        most_bytes: int,
        within_sec: float = 10.0,
    ) -> None:
        """`public` routes need no credential; `most_bytes` is the limit of a body; `within_sec` is
        the time to find the caller, and to read: after that, the engine is unavailable. As long
        as an engine waits itself, so that a busy machine is not taken for an outage."""
        self._most_bytes = most_bytes
        self._guard = guard
        self._within_sec = within_sec
        routes = [
            Route(each.path, self._guarded(each), methods=[each.method]) for each in endpoints
        ]
        own = [Route("/health", _health), *public, *routes]
        self._router = Router(own, redirect_slashes=False, default=self._refuse)

    async def __call__(self, scope: AsgiScope, receive: Receive, send: Send) -> None:
        await self._router({**scope, "app": self, _MOST_BYTES: self._most_bytes}, receive, send)

    def _guarded(self, endpoint: Endpoint) -> Callable[[Request], Awaitable[Response]]:
        async def call(request: Request) -> Response:
            principal = await self._in_time(self._guard.require(request, endpoint.scope))

            async def answer(request: Request) -> Response:
                answering = endpoint.handler(request, principal)
                if endpoint.method == "GET":
                    answering = self._in_time(answering)
                return await answering or Response(status_code=204)

            if not endpoint.makes:
                return await answer(request)
            await read_body(request, most_bytes=self._most_bytes)
            return await self._guard.idempotency.answer(
                request, answer, scope=principal.account_id, operation=f"e2b {endpoint.path}"
            )

        return call

    async def _in_time(self, work: Awaitable[T]) -> T:
        try:
            return await asyncio.wait_for(work, self._within_sec)
        except TimeoutError as error:
            raise UnavailableError from error

    async def _refuse(self, scope: AsgiScope, receive: Receive, _send: Send) -> None:
        await self._guard.require(Request(scope, receive), Scope.READ)
        first = path_of(scope).split("/")[1]
        raise NotOfferedError if first in _NOT_OFFERED else NotFoundError


async def _health(_request: Request) -> Response:
    return json_response({"status": "ok"})


def page_headers(following: str | None) -> dict[str, str]:
    return {"X-Next-Token": following} if following else {}
