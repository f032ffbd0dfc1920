"""The pool of these tests."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from sandyard.broker.metrics import BrokerMetrics
from sandyard.broker.pool.ports import PoolStore
from sandyard.broker.pool.service import Broker
from sandyard.tools.provider.simulator import Simulator
from tests.integration.broker.yard import Yard
from tests.integration.conftest import Connect
from tests.support.clocks import ManualClock
from tests.support.storage.engines import ONE_STORE_ENGINE, pool_store


@pytest.fixture(params=ONE_STORE_ENGINE)
async def store(
    request: pytest.FixtureRequest, tmp_path: Path, postgres_url: str, dynamo_url: str
) -> AsyncIterator[PoolStore]:
    async with pool_store(request.param, tmp_path, postgres_url, dynamo_url) as store:
        yield store


@pytest.fixture
def yard(
    simulator: Simulator,
    simulator_url: str,
    connect: Connect,
    store: PoolStore,
    broker: Broker,
    clock: ManualClock,
    metrics: BrokerMetrics,
) -> Yard:
    return Yard(simulator, simulator_url, connect, store, broker, clock, metrics)
