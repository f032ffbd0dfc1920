"""A gateway for each test."""

from collections.abc import AsyncIterator

import pytest

from tests.support.servers.gateway import GatewayServer, gateway_server


@pytest.fixture
async def server() -> AsyncIterator[GatewayServer]:
    async with gateway_server() as server:
        yield server
