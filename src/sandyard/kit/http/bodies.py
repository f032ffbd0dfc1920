"""Request bodies: how large they may be, how they are read, and how they are parsed."""

import asyncio
import json
from collections.abc import AsyncIterator, Callable, Iterable
from dataclasses import dataclass
from typing import Any, TypeVar
from urllib.parse import parse_qsl

from starlette.requests import ClientDisconnect, Request
from starlette.routing import BaseRoute, Match, Route
from starlette.types import Message, Receive, Scope

from sandyard.kit.errors import BodyBrokenOffError, BodyTooLargeError, InvalidError

T = TypeVar("T")
OPEN_BYTES = 16 * 1024
"""The largest body of a call that needs no credential."""
MOST_KEYS = 200
"""The most keys of one JSON object in a body."""
_MOST_FIELDS = 100
_QUICK_BYTES = 64 * 1024
_READ_SEC = 30.0


class TooManyKeysError(InvalidError):
    """An object in the body has more than 200 keys. Send fewer."""


@dataclass(frozen=True, slots=True)
class BodyLimit:
    """The bytes of a body, and the seconds for all of it; of a streamed one, for each chunk."""

    most_bytes: int
    timeout_sec: float
    is_streamed: bool = False

    async def applied(self, scope: Scope, receive: Receive) -> Receive:
        """`receive`, which raises BodyTooLargeError and BodyBrokenOffError. A declared length is
        checked at once; a body of undeclared length that is not streamed is read ahead, because a
        call that needs no body would never read it."""
        is_declared = _require_length(scope, self.most_bytes)
        if self.is_streamed:
            return self._streamed(receive)
        timed = _timed(receive, self.timeout_sec)
        return timed if is_declared else _replay(await _read(timed, self.most_bytes), timed)

    def _streamed(self, receive: Receive) -> Receive:
        size = 0
        is_complete = False

        async def streamed() -> Message:
            nonlocal size, is_complete
            if is_complete:
                return await receive()
            message = await _timed(receive, self.timeout_sec)()
            size += len(message.get("body", b""))
            if size > self.most_bytes:
                raise BodyTooLargeError
            is_complete = not message.get("more_body")
            return message

        return streamed


class BodyLimits:
    """The limit of each route: `OPEN_BYTES` for those that need no credential."""

    def __init__(
        self,
        usual: BodyLimit,
        *,
        streamed: BodyLimit | None = None,
        streamed_routes: Iterable[BaseRoute] = (),
        open_routes: Iterable[BaseRoute] = (),
    ) -> None:
        self._usual = usual
        self._streamed = streamed or usual
        self._streamed_routes = list(streamed_routes)
        self._open = BodyLimit(min(OPEN_BYTES, usual.most_bytes), usual.timeout_sec)
        self._open_paths = {each.path for each in open_routes if isinstance(each, Route)}

    def of(self, scope: Scope) -> BodyLimit:
        if scope["path"] in self._open_paths:
            return self._open
        is_streamed = any(route.matches(scope)[0] is Match.FULL for route in self._streamed_routes)
        return self._streamed if is_streamed else self._usual


class JsonRequest(Request):
    """A request whose JSON is parsed within the limits of `parse_json`."""

    async def json(self) -> Any:
        if not hasattr(self, "_json"):
            self._json = await parse(parse_json, await self.body())
        return self._json


async def read_body(
    request: Request, *, most_bytes: int, timeout_sec: float | None = _READ_SEC
) -> bytes:
    """Raises BodyTooLargeError, BodyBrokenOffError. It may be read again, as Starlette's `body`."""
    try:
        async with asyncio.timeout(timeout_sec):
            body = b"".join([piece async for piece in limited(request.stream(), most_bytes)])
    except (TimeoutError, ClientDisconnect) as error:
        raise BodyBrokenOffError from error
    request._body = body  # noqa: SLF001 - where Starlette keeps it
    return body


async def read_form(request: Request, *, most_bytes: int) -> dict[str, str]:
    """The fields of a submitted form; empty ones are omitted. Raises BodyTooLargeError,
    InvalidError."""
    body = await read_body(request, most_bytes=most_bytes)
    try:
        return dict(parse_qsl(body.decode("utf-8", "replace"), max_num_fields=_MOST_FIELDS))
    except ValueError as error:
        raise InvalidError(f"A form may have {_MOST_FIELDS} fields.") from error


async def limited(pieces: AsyncIterator[bytes], most_bytes: int) -> AsyncIterator[bytes]:
    """Raises BodyTooLargeError."""
    size = 0
    async for piece in pieces:
        size += len(piece)
        if size > most_bytes:
            raise BodyTooLargeError
        yield piece


async def parse(call: Callable[[bytes], T], body: bytes) -> T:
    """The result of the call; for a large body in a thread, so that other requests go on."""
    if len(body) <= _QUICK_BYTES:
        return call(body)
    return await asyncio.to_thread(call, body)


def parse_json(body: bytes) -> Any:
    """Raises ValueError, TooManyKeysError."""
    try:
        return json.loads(body, object_pairs_hook=_object)
    except RecursionError as error:
        raise ValueError("the JSON is nested too deeply") from error


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    if len(pairs) > MOST_KEYS:
        raise TooManyKeysError
    return dict(pairs)


def _require_length(scope: Scope, most_bytes: int) -> bool:
    """Whether the length is declared, or there is no body. Raises BodyTooLargeError."""
    is_declared = True
    for name, value in scope["headers"]:
        if name == b"content-length" and value.isdigit() and int(value) > most_bytes:
            raise BodyTooLargeError
        if name == b"transfer-encoding":
            is_declared = False
    return is_declared


def _timed(receive: Receive, seconds: float) -> Receive:
    """`receive`, which raises BodyBrokenOffError once the body has taken longer than this."""
    loop = asyncio.get_running_loop()
    deadline = loop.time() + seconds
    is_complete = False

    async def timed() -> Message:
        nonlocal is_complete
        if is_complete:  # from here on it only waits for the disconnect
            return await receive()
        try:
            async with asyncio.timeout_at(deadline):
                message = await receive()
        except TimeoutError as error:
            raise BodyBrokenOffError from error
        is_complete = not message.get("more_body")
        return message

    return timed


async def _read(receive: Receive, most_bytes: int) -> list[Message]:
    messages: list[Message] = []
    size = 0
    while True:
        message = await receive()
        messages.append(message)
        size += len(message.get("body", b""))
        if size > most_bytes:
            raise BodyTooLargeError
        if not message.get("more_body"):
            return messages


def _replay(messages: list[Message], receive: Receive) -> Receive:
    left = iter(messages)

    async def replay() -> Message:
        return next(left, None) or await receive()

    return replay
