"""Error responses, also before a WebSocket opens; statuses are in `kit/http/error_statuses.py`."""

import logging
import re
from collections.abc import Mapping, Sequence
from typing import Any

import orjson
from fastapi import FastAPI, Request, Response
from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException
from starlette.requests import HTTPConnection
from starlette.routing import Match, Route
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from sandyard.entrypoints.http.route_checks import RefusedMethods
from sandyard.kit.errors import (
    InvalidError,
    MethodNotAllowedError,
    NotFoundError,
    SandyardError,
    UnauthorizedError,
    UnavailableError,
)
from sandyard.kit.http.error_statuses import status_of
from sandyard.kit.patterns import in_words

logger = logging.getLogger(__name__)

_TYPE_NAME = re.compile(r"constrained-\w+|list\[.*\]")
"""Pydantic's names for the alternatives of a union field."""
_MOST_MISTAKES = 10
_LONGEST_FIELD = 100


def error_response(
    error: SandyardError, request_id: str, *, beside: Mapping[str, Any] | None = None
) -> Response:
    """`beside` are additional fields, for callers that expect another format."""
    body: dict[str, Any] = {
        "code": error.code,
        "message": error.message,
        "request_id": request_id,
    }
    headers: dict[str, str] = {}
    if error.retry_after is not None:
        body["retry_after"] = error.retry_after
        headers["Retry-After"] = str(error.retry_after)
    if error.details is not None:
        body["details"] = error.details
    if isinstance(error, UnauthorizedError):
        headers["WWW-Authenticate"] = error.scheme
    return Response(
        orjson.dumps({"error": body, **(beside or {})}),
        status_code=status_of(error),
        headers=headers,
        media_type="application/json",
    )


def install_error_handlers(app: FastAPI) -> None:
    app.add_exception_handler(SandyardError, respond)
    app.add_exception_handler(RequestValidationError, _malformed)
    app.add_exception_handler(HTTPException, _from_framework)


async def respond(request: Request, error: Exception) -> Response:
    """The response to one of our errors, which is also named in the request's log line."""
    assert isinstance(error, SandyardError)  # noqa: S101 - registered for this class only
    log_error(request, error)
    return error_response(error, _id(request))


def known_error(request: HTTPConnection, error: Exception) -> SandyardError:
    """The error as reported to callers; an unexpected one is logged with its traceback."""
    if isinstance(error, SandyardError):
        log_error(request, error)
        return error
    logger.error("unexpected error", exc_info=error, extra={"request_id": _id(request)})
    request.state.outcome = SandyardError.code
    return SandyardError()


def log_error(request: HTTPConnection, error: SandyardError) -> None:
    """Name it in the request's log line; an outage is logged on its own line with its reason."""
    if isinstance(error, UnavailableError):
        logger.warning(
            error.message,
            extra={"outcome": error.code, "reason": error.reason, "request_id": _id(request)},
        )
    request.state.outcome = error.code


async def _malformed(request: Request, error: Exception) -> Response:
    assert isinstance(error, RequestValidationError)  # noqa: S101 - registered for this class only
    found = error.errors()
    if any(m["type"] == "json_invalid" for m in found):
        return await respond(request, InvalidError("The body is not JSON. Send well-formed JSON."))
    sent = request.headers.get("content-type", "")
    is_body = any(m["loc"][0] == "body" for m in found)
    if is_body and "json" not in sent and int(_length(request)):
        return await respond(
            request,
            InvalidError(
                f"Send the body as `Content-Type: application/json`, not {sent or 'nothing'}."
            ),
        )
    mistakes = [
        {"in": str(m["loc"][0]), "field": _field(m["loc"]), "message": in_words(m)}
        for m in found[:_MOST_MISTAKES]
    ]
    where = ", ".join(sorted({m["field"] or m["in"] for m in mistakes}))
    if len(found) > _MOST_MISTAKES:
        where += f" and {len(found) - _MOST_MISTAKES} more"
    return await respond(
        request,
        InvalidError(f"Malformed: {where}. See details.", details={"mistakes": mistakes}),
    )


def _field(location: Sequence[int | str]) -> str:
    """Without the names of union alternatives."""
    parts = (str(part) for part in location[1:])
    return ".".join(part for part in parts if not _TYPE_NAME.fullmatch(part))[:_LONGEST_FIELD]


async def _from_framework(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)  # noqa: S101 - registered for this class only
    known: SandyardError
    match error.status_code:
        case _ if isinstance(error.__cause__, SandyardError):  # raised while a body was read
            known = error.__cause__
        case 404:
            known = NotFoundError("There is no such path. /docs lists all paths.")
        case 405:
            known = MethodNotAllowedError()
        case _:
            known = InvalidError("The request could not be read. Send well-formed JSON.")
    response = await respond(request, known)
    if error.status_code == 405:
        response.headers["Allow"] = ", ".join(sorted(_methods(request)))
    return response


def _methods(request: Request) -> set[str]:
    """All methods that the path's routes support; the framework names only those of the first."""
    routes = [each for each in request.app.routes if isinstance(each, Route)]
    matching = [each for each in routes if each.matches(request.scope)[0] is not Match.NONE]
    written_out = [each for each in matching if each.path == request.scope["path"]]
    return {
        method
        for route in written_out or matching
        if not isinstance(route, RefusedMethods)
        for method in route.methods or ()
    }


def _length(request: Request) -> str:
    sent = request.headers.get("content-length", "0")
    return sent if sent.isdigit() else "0"


def _id(request: HTTPConnection) -> str:
    return str(request.state.request_id)


_INTERNAL_ERROR = 1011


async def deny(response: Response, send: Send) -> None:
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
