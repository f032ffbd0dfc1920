"""Responses and errors in the format of E2B's REST API."""

import logging
from typing import Any

from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect
from starlette.responses import Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from sandyard.e2b_api.envd import connect
from sandyard.e2b_api.envd.paths import is_rpc, path_of
from sandyard.e2b_api.errors import STATUSES, Statuses, message_of
from sandyard.kit.errors import (
    MethodNotAllowedError,
    NotFoundError,
    RateLimitedError,
    SandyardError,
    UnavailableError,
)
from sandyard.kit.http.error_statuses import status_of

logger = logging.getLogger(__name__)

SANDBOX_ID = "e2b.sandbox_id"
"""The name of the sandbox's id in an ASGI scope."""
_RETRIED = (RateLimitedError, UnavailableError)
"""Errors that are worth a retry; SDKs would also resend others with the same status."""


def error_body(error: SandyardError, statuses: Statuses) -> dict[str, Any]:
    return {"code": status_of(error, statuses), "message": message_of(error)}


class ErrorBoundary:
    """Serves the application, and its errors in E2B's format."""

    def __init__(self, app: ASGIApp, statuses: Statuses = STATUSES) -> None:
        self._app = app
        self._statuses = statuses

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        is_begun = False

        async def begin(message: Message) -> None:
            nonlocal is_begun
            is_begun = True
            await send(message)

        try:
            await self._app(scope, receive, begin)
        except ClientDisconnect:
            return
        except Exception as error:
            known = _known(error, scope)
            if is_begun:  # it can only be aborted
                raise
            await self._response(known, scope)(scope, receive, send)

    def _response(self, error: SandyardError, scope: Scope) -> Response:
        body = error_body(error, self._statuses)
        status, sandbox_id = body["code"], scope.get(SANDBOX_ID)
        if is_rpc(path_of(scope)) and status != 502:
            return connect.error_response(error, self._statuses)
        if sandbox_id is not None and status == 502:
            body["sandboxId"] = sandbox_id
        headers = {"Should-Retry": "true" if isinstance(error, _RETRIED) else "false"}
        if error.retry_after is not None:
            headers["Retry-After"] = str(error.retry_after)
        return connect.json_response(body, status, headers)


def _known(error: Exception, scope: Scope) -> SandyardError:
    """The error as reported to callers; an unexpected one is logged with its traceback."""
    state = scope.setdefault("state", {})
    if isinstance(error, HTTPException):  # the router's
        error = MethodNotAllowedError() if error.status_code == 405 else NotFoundError()
    if not isinstance(error, SandyardError):
        extra = {"request_id": state.get("request_id")}
        logger.error("unexpected error", exc_info=error, extra=extra)
        error = SandyardError()
    state["outcome"] = error.code
    return error
