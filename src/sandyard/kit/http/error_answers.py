"""The schema of every error response, and its OpenAPI description."""

from collections.abc import Mapping
from typing import Any

from pydantic import BaseModel, Field

from sandyard.kit.errors import (
    BodyTooLargeError,
    ConflictError,
    ForbiddenError,
    InvalidError,
    MethodNotAllowedError,
    NotFoundError,
    RangeNotSatisfiableError,
    RateLimitedError,
    SandyardError,
    UnauthorizedError,
    UnavailableError,
)


class ErrorBody(BaseModel):
    code: str = Field(description="Stable; programs may rely on it")
    message: str = Field(description="What happened and what to do next")
    request_id: str
    retry_after: int | None = Field(None, description="Seconds; only if a retry can help")
    details: dict[str, Any] | None = None


class ErrorAnswer(BaseModel):
    error: ErrorBody


_MEANINGS = {
    400: "A header, parameter or body is malformed; the code says which",
    401: "The credential is missing or not valid for this endpoint",
    403: "Not yours",
    404: "No such thing",
    405: "The path does not take this method",
    409: "The present state does not allow it, or nothing is left",
    413: "The body is too large",
    416: "The range is outside the file",
    429: "Too many requests",
    500: "A fault of ours",
    503: "An engine or the provider is unavailable",
}


_EXAMPLES: Mapping[int, SandyardError] = {
    400: InvalidError(),
    401: UnauthorizedError(),
    403: ForbiddenError(),
    404: NotFoundError(),
    405: MethodNotAllowedError(),
    409: ConflictError(),
    413: BodyTooLargeError(),
    416: RangeNotSatisfiableError(),
    429: RateLimitedError(retry_after=12),
    500: SandyardError(),
    503: UnavailableError(),
}
_ERROR_SCHEMA = {"$ref": f"#/components/schemas/{ErrorAnswer.__name__}"}


def _error_content(status: int) -> dict[str, Any]:
    return {"application/json": {"schema": _ERROR_SCHEMA, "example": _example(_EXAMPLES[status])}}


def errors(*statuses: int) -> dict[int | str, dict[str, Any]]:
    """The OpenAPI description of these error responses, and of those that any call may return.

    They refer to the schema by name; the document adds it. With a model, FastAPI would prepare it
    for each status of each route, which takes a tenth of the startup time.
    """
    return {
        status: {"description": _MEANINGS[status], "content": _error_content(status)}
        for status in sorted({*statuses, 400, 413, 500})
    }


def _example(error: SandyardError) -> dict[str, Any]:
    shown = {"code": error.code, "message": error.message, "request_id": "req_0f3a9c5b7d1e2468"}
    waiting = {} if error.retry_after is None else {"retry_after": error.retry_after}
    return {"error": shown | waiting}
