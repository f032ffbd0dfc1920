"""Answers and errors in the shapes of E2B's REST API."""

from collections.abc import Mapping
from typing import Any

import orjson
from starlette.responses import Response

from sandyard.e2b_api.envd.connect import GONE
from sandyard.e2b_api.errors import NotOfferedError, SandboxGoneError
from sandyard.kit.errors import (
    ExhaustedError,
    RateLimitedError,
    SandyardError,
    UnavailableError,
)
from sandyard.kit.http.error_statuses import STATUS, status_of
from sandyard.platform.sandboxes.errors import (
    QuotaExceededError,
    SandboxesLimitError,
    TemplateNotUsableError,
)
from sandyard.runtime.errors import NotRunningError, PortClosedError, StorageFullError

_STATUS: Mapping[type[SandyardError], int] = {
    **STATUS,
    NotOfferedError: 501,
    StorageFullError: 507,
    SandboxGoneError: 502,
    NotRunningError: 502,
    PortClosedError: 502,
    QuotaExceededError: 429,
    SandboxesLimitError: 429,
    TemplateNotUsableError: 404,
    ExhaustedError: 429,
}
_RETRIED = (RateLimitedError, UnavailableError)
"""Errors that are worth a retry; SDKs would also resend others with the same status."""


def json_answer(
    content: Any, status: int = 200, headers: Mapping[str, str] | None = None
) -> Response:
    return Response(
        orjson.dumps(content), status, headers=dict(headers or {}), media_type="application/json"
    )


def _message(error: SandyardError) -> str:
    """SDKs recognize some errors by their message."""
    if isinstance(error, SandboxGoneError | NotRunningError):
        return GONE
    is_closed = isinstance(error.__cause__, PortClosedError)
    return "The sandbox is running but port is not open" if is_closed else error.message


def error_body(error: SandyardError) -> dict[str, Any]:
    return {"code": status_of(error, _STATUS), "message": _message(error)}


def error_answer(error: SandyardError, *, sandbox_id: str | None = None) -> Response:
    status = status_of(error, _STATUS)
    body = error_body(error)
    if sandbox_id is not None and status == 502:
        body["sandboxId"] = sandbox_id
    headers = {"Should-Retry": "true" if isinstance(error, _RETRIED) else "false"}
    if error.retry_after is not None:
        headers["Retry-After"] = str(error.retry_after)
    return json_answer(body, status, headers)
