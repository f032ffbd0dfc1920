"""The pool of these tests."""

import pytest

from sandyard.broker.metrics import BrokerMetrics
from sandyard.broker.pool.ports import PoolStore
from sandyard.broker.pool.service import Broker
from sandyard.tools.provider.simulator import Simulator
from tests.integration.broker.yard import Yard
from tests.integration.conftest import Connect
from tests.support.clocks import ManualClock


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
