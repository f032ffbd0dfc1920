"""Telemetry on every engine."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from sandyard.kit import ids
from sandyard.telemetry.keys import ApiKeys
from sandyard.telemetry.ports import KeyStore, TelemetryStore
from sandyard.telemetry.service import Telemetry
from tests.support.clocks import ManualClock
from tests.support.storage.engines import SQL_ENGINES, STORE_ENGINES
from tests.support.telemetry.engines import (
    Stores,
    create_postgres,
    emptied_postgres,
    service_on,
    telemetry_stores,
)


@pytest.fixture(scope="module")
def telemetry_url(postgres_url: str) -> str:
    return asyncio.run(create_postgres(postgres_url))


@pytest.fixture(params=STORE_ENGINES)
async def stores(
    request: pytest.FixtureRequest, tmp_path: Path, telemetry_url: str, dynamo_url: str
) -> AsyncIterator[Stores]:
    if request.param == "postgresql":
        async with emptied_postgres(telemetry_url) as stores:
            yield stores
        return
    async with telemetry_stores(request.param, tmp_path, "", dynamo_url) as stores:
        yield stores


@pytest.fixture(params=SQL_ENGINES)
async def sql_stores(
    request: pytest.FixtureRequest, tmp_path: Path, telemetry_url: str
) -> AsyncIterator[Stores]:
    """The engines that do not collect by themselves what has expired."""
    if request.param == "postgresql":
        async with emptied_postgres(telemetry_url) as stores:
            yield stores
        return
    async with telemetry_stores(request.param, tmp_path, "", "") as stores:
        yield stores


@pytest.fixture
def telemetry_store(stores: Stores) -> TelemetryStore:
    return stores.telemetry


@pytest.fixture
def key_store(stores: Stores) -> KeyStore:
    return stores.keys


@pytest.fixture
def telemetry(stores: Stores, clock: ManualClock) -> Telemetry:
    return service_on(stores, clock)


@pytest.fixture
def monotonic() -> ManualClock:
    """The time by which keys are cached."""
    return ManualClock(0)


@pytest.fixture
def keys(key_store: KeyStore, clock: ManualClock, monotonic: ManualClock) -> ApiKeys:
    return ApiKeys(
        key_store,
        peppers=["salt of the earth"],
        clock=clock,
        make_key_id=ids.uuid4,
        make_api_key=ids.device_api_key,
        monotonic=monotonic.now,
    )
