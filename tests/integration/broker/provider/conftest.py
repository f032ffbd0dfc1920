"""A client of the simulated provider."""

from collections.abc import AsyncIterator

import httpx
import pytest


@pytest.fixture
async def http(simulator_url: str) -> AsyncIterator[httpx.AsyncClient]:
    async with httpx.AsyncClient(base_url=simulator_url, timeout=60) as client:
        yield client
