"""A gateway for each test."""

from collections.abc import AsyncIterator

import pytest

from tests.gateways import GatewayServer, gateway_server


@pytest.fixture
async def server() -> AsyncIterator[GatewayServer]:
    async with gateway_server() as server:
        yield server
