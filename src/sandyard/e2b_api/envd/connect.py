"""The Connect protocol in JSON, as far as E2B's SDKs speak it: messages, streams and errors."""

import asyncio
import json
from collections.abc import AsyncIterator, Callable, Mapping
from dataclasses import dataclass
from typing import Any

from starlette.requests import Request
from starlette.responses import Response

from sandyard.e2b_api.errors import (
    STATUSES,
    DeadlineExceededError,
    FolderExistsError,
    InvalidRequestError,
    SandboxGoneError,
    Statuses,
    message_of,
)
from sandyard.kit.errors import BodyTooLargeError, SandyardError
from sandyard.kit.http.error_statuses import status_of
from sandyard.runtime.errors import CommandRefusedError, NotRunningError

Message = Mapping[str, Any]

UNARY = "application/json"
STREAM = "application/connect+json"

_LAST = 2
_COMPRESSED = 1
_HEADER_BYTES = 5
_POLL_SEC = 0.5
_CODES = {
    400: "invalid_argument",
    401: "unauthenticated",
    403: "permission_denied",
    404: "not_found",
    409: "failed_precondition",
    413: "resource_exhausted",
    429: "resource_exhausted",
    501: "unimplemented",
    502: "unavailable",
    503: "unavailable",
    504: "deadline_exceeded",
    507: "resource_exhausted",
}
"""The protocol's error code for each status."""
_STATUS = {
    "invalid_argument": 400,
    "failed_precondition": 400,
    "resource_exhausted": 429,
    "unavailable": 503,
}
"""The status of codes that several statuses have."""


def error_of(error: SandyardError, statuses: Statuses = STATUSES) -> dict[str, str]:
    code = _CODES.get(status_of(error, statuses), "internal")
    if isinstance(error, FolderExistsError):
        code = "already_exists"
    if isinstance(error, CommandRefusedError):
        code = "invalid_argument"
    return {"code": code, "message": message_of(error)}


def error_response(error: SandyardError, statuses: Statuses = STATUSES) -> Response:
    body = error_of(error, statuses)
    return json_response(body, _STATUS.get(body["code"]) or status_of(error, statuses))


def unsupported() -> Response:
    """For other codecs, mainly binary protobuf."""
    message = "This server takes and gives JSON: send application/json or application/connect+json."
    response = json_response({"code": "unimplemented", "message": message}, 415)
    response.headers["Accept-Post"] = f"{UNARY}, {STREAM}"
    return response


def json_response(
    content: Any, status: int = 200, headers: Mapping[str, str] | None = None
) -> Response:
    return Response(to_json(content), status, headers, UNARY)


def to_json(content: Any) -> bytes:
    """By the standard library: this package is also carried into machines."""
    return json.dumps(content, ensure_ascii=False, separators=(",", ":")).encode()


def media_type_of(request: Request) -> str:
    return request.headers.get("content-type", "").partition(";")[0].strip().lower()


async def body_of(request: Request, *, most_bytes: int) -> bytes:
    """Raises BodyTooLargeError."""
    return b"".join([piece async for piece in limited(request.stream(), most_bytes)])


async def limited(pieces: AsyncIterator[bytes], most_bytes: int) -> AsyncIterator[bytes]:
    """Raises BodyTooLargeError."""
    size = 0
    async for piece in pieces:
        size += len(piece)
        if size > most_bytes:
            raise BodyTooLargeError
        yield piece


def object_of(body: bytes) -> Message:
    """Raises InvalidRequestError."""
    try:
        found = json.loads(body.decode() or "{}")
    except ValueError as error:
        raise InvalidRequestError from error
    if not isinstance(found, dict):
        raise InvalidRequestError
    return found


def frame(message: Message, flags: int = 0) -> bytes:
    body = to_json(message)
    return bytes([flags]) + len(body).to_bytes(4, "big") + body


def only(message: Message) -> bytes:
    """A stream of one message."""
    return frame(message) + frame({}, _LAST)


def failed(error: SandyardError) -> bytes:
    """The last frame of a stream that failed."""
    return frame({"error": error_of(error)}, _LAST)


async def frames_of(pieces: AsyncIterator[bytes], *, most_bytes: int) -> AsyncIterator[Message]:
    """The messages of a stream as they arrive. Raises InvalidRequestError, BodyTooLargeError."""
    waiting = b""
    async for piece in pieces:
        waiting += piece
        while len(waiting) >= _HEADER_BYTES:
            flags, size = waiting[0], int.from_bytes(waiting[1:_HEADER_BYTES], "big")
            if flags & _COMPRESSED:
                raise InvalidRequestError("Compressed messages are not supported.")
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
        in_flight = getattr(request.state, "in_flight", None)
        return cls(
            is_stopping=lambda: bool(in_flight and in_flight.draining),
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
