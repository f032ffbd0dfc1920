"""Enforces limits on request bodies, and turns errors into responses."""

import logging

from starlette.requests import ClientDisconnect, Request
from starlette.types import ASGIApp, Receive, Scope, Send

from sandyard.entrypoints.http.errors import respond
from sandyard.kit.errors import BodyBrokenOffError, SandyardError
from sandyard.kit.http.access_watch import AccessWatch
from sandyard.kit.http.bodies import BodyLimits

logger = logging.getLogger("sandyard.access")

BROKEN_OFF = "BROKEN_OFF"
"""The outcome of a request whose response was not completed."""


class ErrorResponses:
    """Enforces the limits on bodies, and returns every error in the same format."""

    def __init__(self, app: ASGIApp, *, limits: BodyLimits) -> None:
        self._app = app
        self._limits = limits

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        try:
            receive = await self._limits.of(scope).applied(scope, receive)
            async with AccessWatch(scope):
                await self._app(scope, receive, send)
        except SandyardError as error:
            if scope["state"]["status"]:
                _log_aborted(error, scope["state"]["request_id"])
                scope["state"]["outcome"] = BROKEN_OFF
                raise  # the response has started; all we can do is close the connection
            await _answer(error, scope, receive, send)
        except ClientDisconnect:
            await _answer(BodyBrokenOffError(), scope, receive, send)
        except Exception as error:
            state = scope["state"]
            cause = error.__cause__  # Starlette's error, if ours came after the start
            if state["status"] and isinstance(cause, SandyardError):
                _log_aborted(cause, state["request_id"])
            else:
                logger.exception("unexpected error", extra={"request_id": state["request_id"]})
            if state["status"]:
                state["outcome"] = BROKEN_OFF
                raise  # the response has started; all we can do is close the connection
            await _answer(SandyardError(), scope, receive, send)


def _log_aborted(error: SandyardError, request_id: str) -> None:
    fields = {"outcome": error.code, "reason": error.message, "request_id": request_id}
    logger.info("response aborted", extra=fields)


async def _answer(error: SandyardError, scope: Scope, receive: Receive, send: Send) -> None:
    """Also to a client that disconnected: it may have closed only its own half, and still read."""
    response = await respond(Request(scope), error)
    if not scope["state"]["status"]:
        await response(scope, receive, send)
