"""Telemetry's event log on DynamoDB."""

import asyncio
from collections.abc import Sequence
from datetime import timedelta

from sandyard.kit.clock import Clock
from sandyard.kit.dynamo.events import DynamoEventLog
from sandyard.telemetry.ports import KeyStore, TelemetryStore
from sandyard.telemetry.stores.dynamo_tables import TelemetryTables


def open_event_log(
    tables: TelemetryTables,
    store: TelemetryStore,
    keys: KeyStore,
    *,
    clock: Clock,
    retention: timedelta,
) -> DynamoEventLog:
    async def alive(subjects: Sequence[str]) -> set[str]:
        devices = await store.find_devices(subjects)
        api_keys = await asyncio.gather(*(keys.find_key(each) for each in subjects))
        return {*devices, *(key.key_id for key in api_keys if key is not None)}

    return DynamoEventLog(
        tables.events, part="telemetry", alive=alive, clock=clock, retention=retention
    )
