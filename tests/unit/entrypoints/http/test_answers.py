"""Answers that break off: the connection ends, and the log says why."""

import logging
from typing import Any

import pytest

from sandyard.entrypoints.http.answers import ErrorResponses
from sandyard.kit.errors import ConflictError
from sandyard.kit.http.bodies import BodyLimit, BodyLimits

LIMITS = BodyLimits(BodyLimit(1000, 5))


def failing(cause: Exception) -> Any:
    """An application whose answer has begun when this comes, as Starlette tells it."""

    async def app(scope: Any, _receive: Any, _send: Any) -> None:
        scope["state"]["status"] = 200
        raise RuntimeError("response already started") from cause

    return app


@pytest.mark.parametrize(
    ("cause", "level", "told"),
    [
        (ConflictError("It has ended."), logging.INFO, "response aborted"),
        (ValueError("a mistake"), logging.ERROR, "unexpected error"),
    ],
)
async def test_what_was_foreseen_has_no_traceback(
    caplog: pytest.LogCaptureFixture, cause: Exception, level: int, told: str
) -> None:
    scope = {
        "type": "http",
        "path": "/",
        "headers": [],
        "state": {"request_id": "req_1", "status": 0},
    }
    answers = ErrorResponses(failing(cause), limits=LIMITS)
    with caplog.at_level(logging.INFO), pytest.raises(RuntimeError):
        await answers(scope, None, None)  # type: ignore[arg-type]
    [record] = caplog.records
    assert (record.levelno, record.message) == (level, told)
    assert bool(record.exc_info) == (level == logging.ERROR)
