"""Errors in E2B's format."""

import logging
from typing import Any

import httpx
import pytest
from starlette.exceptions import HTTPException
from starlette.responses import PlainTextResponse
from starlette.types import Receive, Scope, Send

from sandyard.e2b_api.envd.connect import SANDBOX_ID, ErrorBoundary
from sandyard.e2b_api.errors import (
    BuildNotFoundError,
    DeadlineExceededError,
    FolderExistsError,
    InvalidRequestError,
    NotOfferedError,
    SandboxGoneError,
)
from sandyard.e2b_api.model import PLATFORM_STATUSES
from sandyard.kit.errors import RateLimitedError, UnavailableError
from sandyard.platform.sandboxes.errors import QuotaExceededError
from sandyard.runtime.errors import (
    CommandRefusedError,
    FileMissingError,
    FileRefusedError,
    NotRunningError,
    StorageFullError,
)


def client(error: Exception, sandbox_id: str | None = None) -> httpx.AsyncClient:
    async def app(_scope: Scope, _receive: Receive, _send: Send) -> None:
        raise error

    async def named(scope: Scope, receive: Receive, send: Send) -> None:
        await ErrorBoundary(app, PLATFORM_STATUSES)(
            {**scope, SANDBOX_ID: sandbox_id}, receive, send
        )

    return httpx.AsyncClient(transport=httpx.ASGITransport(named), base_url="http://test")


@pytest.mark.parametrize(
    ("error", "status", "is_retried"),
    [
        (InvalidRequestError(), 400, "false"),
        (BuildNotFoundError(), 404, "false"),
        (HTTPException(404), 404, "false"),
        (HTTPException(405), 405, "false"),
        (QuotaExceededError(), 429, "false"),
        (RateLimitedError(retry_after=3), 429, "true"),
        (NotOfferedError(), 501, "false"),
        (UnavailableError(), 503, "true"),
        (StorageFullError(), 507, "false"),
        (RuntimeError("unexpected"), 500, "false"),
    ],
)
async def test_the_status_of_an_error(error: Exception, status: int, is_retried: str) -> None:
    answer = await client(error).get("/sandboxes")
    assert (answer.status_code, answer.json()["code"]) == (status, status)
    assert answer.headers["should-retry"] == is_retried
    assert answer.json()["message"]


async def test_when_to_retry_is_told() -> None:
    assert (await client(RateLimitedError(retry_after=3)).get("/")).headers["retry-after"] == "3"


@pytest.mark.parametrize("error", [SandboxGoneError(), NotRunningError()])
async def test_a_sandbox_that_is_gone_is_recognized_by_its_message(error: Exception) -> None:
    answer = await client(error, "sbx-1").post("/process.Process/List")
    assert answer.status_code == 502
    assert answer.json() == {
        "code": 502,
        "message": "The sandbox was not found",
        "sandboxId": "sbx-1",
    }


@pytest.mark.parametrize(
    ("error", "status", "code"),
    [
        (FileMissingError(), 404, "not_found"),
        (FileRefusedError(), 400, "failed_precondition"),
        (FolderExistsError(), 409, "already_exists"),
        (CommandRefusedError(), 400, "invalid_argument"),
        (StorageFullError(), 429, "resource_exhausted"),
        (QuotaExceededError(), 429, "resource_exhausted"),
        (UnavailableError(), 503, "unavailable"),
        (DeadlineExceededError(), 504, "deadline_exceeded"),
        (NotOfferedError(), 501, "unimplemented"),
        (RuntimeError("unexpected"), 500, "internal"),
    ],
)
async def test_calls_inside_have_the_codes_of_connect(
    error: Exception, status: int, code: str
) -> None:
    answer = await client(error, "sbx-1").post("/filesystem.Filesystem/Stat")
    assert (answer.status_code, answer.json()["code"]) == (status, code)


async def test_an_unexpected_error_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.ERROR):
        answer = await client(RuntimeError("the cause")).get("/")
    assert "the cause" not in answer.text
    assert "the cause" in caplog.text


async def test_a_response_that_has_begun_is_aborted() -> None:
    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        await PlainTextResponse("begun")(scope, receive, send)
        raise NotRunningError

    sent: list[Any] = []

    async def send(message: Any) -> None:
        sent.append(message)

    async def receive() -> Any:
        return {"type": "http.disconnect"}

    with pytest.raises(NotRunningError):
        await ErrorBoundary(app)({"type": "http", "path": "/", "headers": []}, receive, send)
    assert sent[0]["status"] == 200
