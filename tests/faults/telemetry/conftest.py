"""Telemetry's tables, and its stores on either side of the proxy."""

from collections.abc import AsyncIterator

import pytest

from sandyard.telemetry.service import Telemetry
from sandyard.telemetry.stores.dynamo_tables import TelemetryTables
from tests.faults.proxy import FaultProxy
from tests.faults.telemetry.stores import stores_through
from tests.support.clocks import ManualClock
from tests.support.telemetry.engines import (
    DEVICE,
    OTHER_DEVICE,
    Stores,
    on_dynamodb,
    register,
    service_on,
    table_prefix,
    telemetry_tables,
)


@pytest.fixture
async def tables(dynamo_url: str) -> AsyncIterator[TelemetryTables]:
    """The four tables, reached without the proxy."""
    async with telemetry_tables(dynamo_url, prefix=table_prefix()) as tables:
        await tables.create()
        yield tables


@pytest.fixture
async def past_faults(tables: TelemetryTables) -> Stores:
    """The stores, seen past all faults, with a device that has registered."""
    stores = on_dynamodb(tables)
    await register(stores, DEVICE, OTHER_DEVICE)
    return stores


@pytest.fixture
async def stores(
    tables: TelemetryTables, proxy: FaultProxy, past_faults: Stores
) -> AsyncIterator[Stores]:
    async with stores_through(tables, proxy) as stores:
        proxy.reset_counts()
        yield stores


@pytest.fixture
def telemetry(stores: Stores, clock: ManualClock) -> Telemetry:
    return service_on(stores, clock)
