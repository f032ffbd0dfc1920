"""A start is shown while it goes on, and a refusal at once."""

import asyncio
from types import SimpleNamespace
from typing import Any

import pytest

from sandyard.console.api import ApiError
from sandyard.console.screens.sandboxes import begin_start


def request_of(answer: Any) -> Any:
    return SimpleNamespace(api=SimpleNamespace(post=answer))


async def test_a_long_start_does_not_keep_its_page_waiting() -> None:
    is_over = asyncio.Event()

    async def start(path: str) -> None:
        assert path == "platform/sandboxes/sbx-1/start"
        await is_over.wait()
        raise ApiError(409, {"code": "LATER"})

    async with asyncio.timeout(5):
        await begin_start(request_of(start), "sbx-1")
    is_over.set()
    await asyncio.sleep(0)


async def test_a_refusal_is_shown_at_once() -> None:
    async def refuse(_path: str) -> None:
        raise ApiError(409, {"code": "QUOTA_EXCEEDED"})

    with pytest.raises(ApiError) as refused:
        await begin_start(request_of(refuse), "sbx-1")
    assert refused.value.code == "QUOTA_EXCEEDED"
