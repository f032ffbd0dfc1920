"""The control API: calls end in time, also if the engine does not respond."""

import asyncio
from typing import Any, cast

import httpx
import pytest

from sandyard.e2b_api.control import ControlApi, Endpoint
from sandyard.e2b_api.envd.connect import ErrorBoundary
from sandyard.platform.access.principal import Principal, Role, Scope


class Guard:
    """Lets everybody in, or never responds."""

    def __init__(self, *, is_away: bool) -> None:
        self._is_away = is_away

    async def require(self, _request: object, _scope: Scope) -> Principal:
        await asyncio.sleep(60 if self._is_away else 0)
        return Principal("100000000001", Role.USER)


async def never(_request: object, _principal: Principal) -> None:
    await asyncio.sleep(60)


async def status(*, guard: Guard, method: str = "GET") -> int:
    endpoints = [Endpoint("GET", "/slow", never, Scope.READ)]
    endpoints.append(Endpoint("POST", "/slow", never, Scope.RUN))
    api = ControlApi(cast("Any", guard), endpoints, most_bytes=1000, within_sec=0.05)
    transport = httpx.ASGITransport(ErrorBoundary(api))
    async with httpx.AsyncClient(transport=transport, base_url="http://test") as client:
        return (await client.request(method, "/slow")).status_code


@pytest.mark.parametrize("method", ["GET", "POST"])
async def test_an_engine_that_does_not_know_the_caller_in_time_is_unavailable(method: str) -> None:
    assert await status(guard=Guard(is_away=True), method=method) == 503


async def test_a_read_that_takes_too_long_is_an_outage() -> None:
    assert await status(guard=Guard(is_away=False)) == 503


async def test_a_call_that_acts_may_take_its_time() -> None:
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.3):
            await status(guard=Guard(is_away=False), method="POST")
