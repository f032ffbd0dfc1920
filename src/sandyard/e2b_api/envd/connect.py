"""The Connect protocol in JSON, as far as E2B's SDKs speak it: messages and streams; and errors, in
its format or in that of E2B's REST API."""

import asyncio
import json
import logging
from collections.abc import AsyncIterator, Callable, Mapping
from dataclasses import dataclass
from typing import Any

from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.types import ASGIApp, Receive, Scope, Send

from sandyard.e2b_api import errors
from sandyard.e2b_api.envd.paths import is_rpc, path_of
from sandyard.kit.errors import (
    BodyBrokenOffError,
    BodyTooLargeError,
    MethodNotAllowedError,
    NotFoundError,
    RateLimitedError,
    SandyardError,
    UnauthorizedError,
    UnavailableError,
)
from sandyard.kit.http.access_watch import AccessWatch
from sandyard.kit.http.bodies import parse, parse_json, read_body
from sandyard.kit.http.error_statuses import status_of
from sandyard.runtime.errors import CommandRefusedError, NotRunningError

logger = logging.getLogger(__name__)

Message = Mapping[str, Any]

SANDBOX_ID = "e2b.sandbox_id"
"""The name of the sandbox's id in an ASGI scope."""
UNARY = "application/json"
STREAM = "application/connect+json"
_OF_STREAM = (b"content-type", STREAM.encode())

_LAST = 2
_COMPRESSED = 1
_HEADER_BYTES = 5
_POLL_SEC = 0.5
_LARGEST = 10**9
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
_RETRIED = (RateLimitedError, UnavailableError)
"""Errors that are worth a retry; SDKs would also resend others with the same status."""
_STATUS = {
    "invalid_argument": 400,
    "failed_precondition": 400,
    "resource_exhausted": 429,
    "unavailable": 503,
}
"""The status of codes that several statuses have."""


def error_of(error: SandyardError, statuses: errors.Statuses = errors.STATUSES) -> dict[str, str]:
    code = _CODES.get(status_of(error, statuses), "internal")
    if isinstance(error, errors.FolderExistsError):
        code = "already_exists"
    if isinstance(error, CommandRefusedError):
        code = "invalid_argument"
    return {"code": code, "message": errors.message_of(error)}


def error_response(error: SandyardError, statuses: errors.Statuses = errors.STATUSES) -> Response:
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


async def message_of_request(request: Request, *, most_bytes: int) -> Message:
    """Raises InvalidRequestError, BodyTooLargeError."""
    return await parse(object_of, await read_body(request, most_bytes=most_bytes))


def object_of(body: bytes) -> Message:
    """Raises InvalidRequestError, TooManyKeysError."""
    try:
        found = parse_json(body or b"{}")
    except ValueError as error:
        raise errors.InvalidRequestError from error
    if not isinstance(found, dict):
        raise errors.InvalidRequestError
    return found


def frame(message: Message, flags: int = 0) -> bytes:
    body = to_json(message)
    return bytes([flags]) + len(body).to_bytes(4, "big") + body


def only(message: Message) -> bytes:
    return frame(message) + frame({}, _LAST)


def failed(error: SandyardError) -> bytes:
    """The last frame of a stream that failed."""
    return frame({"error": error_of(error)}, _LAST)


async def frames_of(pieces: AsyncIterator[bytes], *, most_bytes: int) -> AsyncIterator[Message]:
    """The messages of a stream as they arrive. Raises InvalidRequestError, BodyTooLargeError."""
    waiting = bytearray()
    async for piece in pieces:
        waiting += piece
        while len(waiting) >= _HEADER_BYTES:
            flags, size = waiting[0], int.from_bytes(waiting[1:_HEADER_BYTES], "big")
            if flags & _COMPRESSED:
                raise errors.InvalidRequestError("Compressed messages are not supported.")
            if size > most_bytes:
                raise BodyTooLargeError
            end = _HEADER_BYTES + size
            if len(waiting) < end:
                break
            body = bytes(waiting[_HEADER_BYTES:end])
            del waiting[:end]
            if flags & _LAST:
                return
            yield await parse(object_of, body)
    if waiting:
        raise errors.InvalidRequestError("The stream ended inside a message.")


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
    """At most `_LARGEST`; 0 if it is not a number."""
    if not text or not text.isascii() or not text.isdigit():
        return 0
    return int(text) if len(text) < len(str(_LARGEST)) else _LARGEST


async def streamed(events: AsyncIterator[Message], policy: StreamPolicy) -> AsyncIterator[bytes]:
    """The events as frames, and the last frame, which has the error, if any. A stream that is
    aborted because the server stops has no last frame; one whose sandbox ended is cut, so that SDKs
    look up the sandbox and report that it is gone."""
    try:
        async for event in _timed(events, policy):
            yield frame(event)
    except (NotRunningError, errors.SandboxGoneError):
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
                raise errors.DeadlineExceededError
            elif loop.time() >= ping:
                ping = loop.time() + policy.keepalive_sec
                yield policy.keepalive
    finally:
        item.cancel()
        await asyncio.wait({item})
        await events.aclose()  # type: ignore[attr-defined]


def error_body(error: SandyardError, statuses: errors.Statuses) -> dict[str, Any]:
    return {"code": status_of(error, statuses), "message": errors.message_of(error)}


class ErrorBoundary:
    """Serves the application, and its errors in E2B's format."""

    def __init__(self, app: ASGIApp, statuses: errors.Statuses = errors.STATUSES) -> None:
        self._app = app
        self._statuses = statuses

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        start: Mapping[str, Any] | None = None

        async def begin(message: Any) -> None:
            nonlocal start
            start = start or message
            await send(message)

        try:
            async with AccessWatch(scope):
                await self._app(scope, receive, begin)
        except Exception as error:
            known = _known(error, scope)
            if start is None:
                await self._response(known, scope)(scope, receive, send)
            elif isinstance(known, UnauthorizedError) and _OF_STREAM in start["headers"]:
                await send({"type": "http.response.body", "body": failed(known)})
            else:  # it can only be aborted
                raise

    def _response(self, error: SandyardError, scope: Scope) -> Response:
        body = error_body(error, self._statuses)
        status, sandbox_id = body["code"], scope.get(SANDBOX_ID)
        if is_rpc(path_of(scope)) and status != 502:
            return error_response(error, self._statuses)
        if sandbox_id is not None and status == 502:
            body["sandboxId"] = sandbox_id
        headers = {"Should-Retry": "true" if isinstance(error, _RETRIED) else "false"}
        if error.retry_after is not None:
            headers["Retry-After"] = str(error.retry_after)
        return json_response(body, status, headers)


def _known(error: Exception, scope: Scope) -> SandyardError:
    """The error as reported to callers; an unexpected one is logged with its traceback."""
    state = scope.setdefault("state", {})
    if isinstance(error, ClientDisconnect):  # or its body is malformed
        error = BodyBrokenOffError()
    if isinstance(error, HTTPException):  # the router's
        error = MethodNotAllowedError() if error.status_code == 405 else NotFoundError()
    if not isinstance(error, SandyardError):
        extra = {"request_id": state.get("request_id")}
        logger.error("unexpected error", exc_info=error, extra=extra)
        error = SandyardError()
    state["outcome"] = error.code
    return error
