"""The Connect protocol in JSON, as far as E2B's SDKs speak it: messages, streams and errors."""

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping
from dataclasses import dataclass
from typing import Any

import orjson
from starlette.requests import Request
from starlette.responses import Response

from sandyard.e2b_api.errors import (
    FolderExistsError,
    NotJsonError,
    NotOfferedError,
    SandboxGoneError,
)
from sandyard.kit.errors import (
    BodyTooLargeError,
    ConflictError,
    ForbiddenError,
    InvalidError,
    NotFoundError,
    RateLimitedError,
    SandyardError,
    UnauthorizedError,
    UnavailableError,
)
from sandyard.runtime.errors import CommandRefusedError, NotRunningError, StorageFullError

Message = Mapping[str, Any]

UNARY = "application/json"
STREAM = "application/connect+json"

_LAST = 2
_COMPRESSED = 1
_HEADER_BYTES = 5
_POLL_SEC = 0.5
_STATUS = {
    "canceled": 499,
    "unknown": 500,
    "invalid_argument": 400,
    "deadline_exceeded": 504,
    "not_found": 404,
    "already_exists": 409,
    "permission_denied": 403,
    "resource_exhausted": 429,
    "failed_precondition": 400,
    "unimplemented": 501,
    "internal": 500,
    "unavailable": 503,
    "unauthenticated": 401,
}
_CODES: Mapping[type[SandyardError], str] = {
    FolderExistsError: "already_exists",
    CommandRefusedError: "invalid_argument",
    StorageFullError: "resource_exhausted",
    BodyTooLargeError: "resource_exhausted",
    NotOfferedError: "unimplemented",
    SandboxGoneError: "unavailable",
    NotRunningError: "unavailable",
    NotFoundError: "not_found",
    InvalidError: "invalid_argument",
    UnauthorizedError: "unauthenticated",
    ForbiddenError: "permission_denied",
    RateLimitedError: "resource_exhausted",
    UnavailableError: "unavailable",
    ConflictError: "failed_precondition",
}
GONE = "The sandbox was not found"
"""SDKs recognize by this message that the sandbox is no longer running."""


class DeadlineExceededError(SandyardError):
    """The caller's deadline has passed."""

    code = "E2B_DEADLINE_EXCEEDED"


def error_of(error: SandyardError) -> dict[str, str]:
    if isinstance(error, DeadlineExceededError):
        return {"code": "deadline_exceeded", "message": error.message}
    code = next((_CODES[kind] for kind in type(error).__mro__ if kind in _CODES), "internal")
    is_gone = isinstance(error, NotRunningError | SandboxGoneError)
    return {"code": code, "message": GONE if is_gone else error.message}


def error_response(error: SandyardError) -> Response:
    body = error_of(error)
    return _json(body, _STATUS[body["code"]])


def unsupported() -> Response:
    """For other codecs, mainly binary protobuf."""
    message = "This server takes and gives JSON: send application/json or application/connect+json."
    response = _json({"code": "unimplemented", "message": message}, 415)
    response.headers["Accept-Post"] = f"{UNARY}, {STREAM}"
    return response


def answer(message: Message) -> Response:
    return _json(message, 200)


def _json(content: Any, status: int) -> Response:
    return Response(orjson.dumps(content), status, media_type=UNARY)


def media_type_of(request: Request) -> str:
    return request.headers.get("content-type", "").partition(";")[0].strip().lower()


def object_of(body: bytes) -> Message:
    """Raises NotJsonError."""
    try:
        found = orjson.loads(body or b"{}")
    except orjson.JSONDecodeError as error:
        raise NotJsonError from error
    if not isinstance(found, dict):
        raise NotJsonError
    return found


def frame(message: Message, flags: int = 0) -> bytes:
    body = orjson.dumps(message)
    return bytes([flags]) + len(body).to_bytes(4, "big") + body


def only(message: Message) -> bytes:
    """A stream of one message."""
    return frame(message) + frame({}, _LAST)


def failed(error: SandyardError) -> bytes:
    """The last frame of a stream that failed."""
    return frame({"error": error_of(error)}, _LAST)


async def frames_of(pieces: AsyncIterator[bytes], *, most_bytes: int) -> AsyncIterator[Message]:
    """The messages of a stream as they arrive. Raises NotJsonError, BodyTooLargeError."""
    waiting = b""
    async for piece in pieces:
        waiting += piece
        while len(waiting) >= _HEADER_BYTES:
            flags, size = waiting[0], int.from_bytes(waiting[1:_HEADER_BYTES], "big")
            if flags & _COMPRESSED:
                raise NotJsonError("Compressed messages are not supported.")
            if size > most_bytes:
                raise BodyTooLargeError
            end = _HEADER_BYTES + size
            if len(waiting) < end:
                break
            body, waiting = waiting[_HEADER_BYTES:end], waiting[end:]
            if flags & _LAST:
                return
            yield object_of(body)


@dataclass(frozen=True, slots=True)
class StreamPolicy:
    """A stream's deadline, its keepalive interval, and when it is aborted."""

    is_stopping: Callable[[], bool]
    keepalive: Message
    keepalive_sec: float = 90
    deadline_sec: float | None = None

    @classmethod
    def of(cls, request: Request, keepalive: Message) -> "StreamPolicy":
        timeout_ms = _number(request.headers.get("connect-timeout-ms"))
        ping_sec = _number(request.headers.get("keepalive-ping-interval"))
        in_flight = request.state.in_flight
        return cls(
            is_stopping=lambda: bool(in_flight.draining),
            keepalive=keepalive,
            keepalive_sec=ping_sec or 90,
            deadline_sec=timeout_ms / 1000 if timeout_ms else None,
        )


def _number(text: str | None) -> int:
    return int(text) if text and text.isascii() and text.isdigit() else 0


async def streamed(events: AsyncIterator[Message], policy: StreamPolicy) -> AsyncIterator[bytes]:
    """The events as frames, and the last frame, which has the error, if any. A stream that is
    aborted because the server stops has no last frame; one whose sandbox ended is cut, so that SDKs
    look up the sandbox and report that it is gone."""
    try:
        async for event in _timed(events, policy):
            yield frame(event)
    except (NotRunningError, SandboxGoneError):
        raise
    except SandyardError as error:
        yield failed(error)
    else:
        if not policy.is_stopping():
            yield frame({}, _LAST)


async def _timed(events: AsyncIterator[Message], policy: StreamPolicy) -> AsyncIterator[Message]:
    loop = asyncio.get_running_loop()
    end = None if policy.deadline_sec is None else loop.time() + policy.deadline_sec
    ping = loop.time() + policy.keepalive_sec
    item = asyncio.ensure_future(anext(events, None))
    try:
        while not policy.is_stopping():
            until = min(ping, loop.time() + _POLL_SEC, *(() if end is None else (end,)))
            await asyncio.wait({item}, timeout=max(0, until - loop.time()))
            if item.done():
                if (event := item.result()) is None:
                    return
                item = asyncio.ensure_future(anext(events, None))
                yield event
            elif end is not None and loop.time() >= end:
                raise DeadlineExceededError
            elif loop.time() >= ping:
                ping = loop.time() + policy.keepalive_sec
                yield policy.keepalive
    finally:
        item.cancel()
        await asyncio.wait({item})
        await events.aclose()  # type: ignore[attr-defined]
