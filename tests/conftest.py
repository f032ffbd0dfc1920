"""Fixtures that every kind of test shares."""

from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest
from prometheus_client import CollectorRegistry

from sandyard.broker.metrics import BrokerMetrics
from sandyard.broker.service import Broker
from sandyard.broker.stores.sql import SqlPoolStore
from sandyard.kit.sql import Database
from tests.clocks import ManualClock
from tests.engines import SQL_ENGINES, broker_database, postgres_folder, postgres_server


@pytest.fixture(scope="session")
def postgres_url() -> Iterator[str]:
    with postgres_folder() as folder, postgres_server(folder / "data") as url:
        yield url


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock(1_800_000_000)


@pytest.fixture(params=SQL_ENGINES)
async def database(
    request: pytest.FixtureRequest, tmp_path: Path, postgres_url: str
) -> AsyncIterator[Database]:
    async with broker_database(request.param, tmp_path, postgres_url) as database:
        yield database


@pytest.fixture
def store(database: Database) -> SqlPoolStore:
    return SqlPoolStore(database)


@pytest.fixture
def metrics() -> BrokerMetrics:
    return BrokerMetrics(CollectorRegistry())


@pytest.fixture
def broker(store: SqlPoolStore, clock: ManualClock, metrics: BrokerMetrics) -> Broker:
    return Broker(store, clock=clock, metrics=metrics)
