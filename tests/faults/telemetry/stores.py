"""Telemetry's stores on DynamoDB, through the proxy and past it."""

import asyncio
import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from dataclasses import replace
from typing import Any

from sandyard.kit import ids
from sandyard.kit.dynamo.client import DynamoPolicy
from sandyard.kit.errors import UnavailableError
from sandyard.telemetry.keys import ApiKeys
from sandyard.telemetry.model import IntakeReport
from sandyard.telemetry.service import Telemetry
from sandyard.telemetry.stores.dynamo_tables import TelemetryTables
from tests.faults.proxy import FaultProxy
from tests.faults.stores import IMPATIENT
from tests.support.clocks import ManualClock
from tests.support.storage.engines import PATIENT
from tests.support.telemetry.engines import Stores, on_dynamodb, telemetry_tables

NOW_TEXT = "2027-01-15T08:00:00Z"
UUID4 = re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-4[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}\Z")

RUSHED = replace(IMPATIENT, deadline_sec=0.4)


@asynccontextmanager
async def stores_through(
    tables: TelemetryTables, proxy: FaultProxy, *, policy: DynamoPolicy = PATIENT
) -> AsyncIterator[Stores]:
    """The same tables as a replica sees them, through the proxy."""
    prefix = tables.devices.name.removesuffix("devices")
    async with telemetry_tables(proxy.url, prefix=prefix, policy=policy) as tables_there:
        yield on_dynamodb(tables_there)


def keys_on(stores: Stores, clock: ManualClock, monotonic: ManualClock) -> ApiKeys:
    return ApiKeys(
        stores.keys,
        peppers=["pepper"],
        clock=clock,
        make_key_id=ids.uuid4,
        make_api_key=ids.device_api_key,
        monotonic=monotonic.now,
    )


async def on_the_wire(tables: TelemetryTables, name: str) -> list[dict[str, Any]]:
    """The items of a table as the engine sends them."""
    payload = {"TableName": getattr(tables, name).name, "ConsistentRead": True}
    items: list[dict[str, Any]] = (await tables.engine.call("Scan", payload))["Items"]
    return items


async def answered(telemetry: Telemetry, raw: list[Any]) -> IntakeReport:
    """What a board gets that sends until it is answered; a busy machine may be slow at first."""
    async with asyncio.timeout(60):
        while True:
            with suppress(UnavailableError):
                return await telemetry.ingest(raw)
