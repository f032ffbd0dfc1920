"""The schema of every error response, and its OpenAPI description."""

from collections.abc import Mapping
from typing import Any

from pydantic import BaseModel, Field

from sandyard.kit.errors import RateLimitedError, SandyardError
from sandyard.kit.http.error_statuses import MEANINGS, STATUS


class ErrorBody(BaseModel):
    code: str = Field(description="Stable; programs may rely on it")
    message: str = Field(description="What happened and what to do next")
    request_id: str
    retry_after: int | None = Field(None, description="Seconds; only if a retry can help")
    details: dict[str, Any] | None = None


class ErrorAnswer(BaseModel):
    error: ErrorBody


_EXAMPLES: Mapping[int, SandyardError] = {
    **{status: kind() for kind, status in reversed([*STATUS.items()])},
    429: RateLimitedError(retry_after=12),
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
        status: {"description": MEANINGS[status], "content": _error_content(status)}
        for status in sorted({*statuses, 400, 413, 500})
    }


def _example(error: SandyardError) -> dict[str, Any]:
    shown = {"code": error.code, "message": error.message, "request_id": "req_0f3a9c5b7d1e2468"}
    waiting = {} if error.retry_after is None else {"retry_after": error.retry_after}
    return {"error": shown | waiting}
