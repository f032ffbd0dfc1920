"""Telemetry's tables on DynamoDB: the four for its data, and the event log."""

import asyncio
from collections.abc import Mapping, Sequence
from datetime import timedelta

from sandyard.kit.clock import Clock
from sandyard.kit.dynamo.client import Dynamo
from sandyard.kit.dynamo.event_items import EventItems, event_table_definition
from sandyard.kit.dynamo.events import DynamoEventLog
from sandyard.kit.dynamo.items import Table
from sandyard.kit.dynamo.store_states import STATE_KEY
from sandyard.kit.dynamo.tables import Definition, TableSet, TableSpec, table_definition
from sandyard.telemetry.ports import KeyStore, TelemetryStore

TTL_ATTRIBUTE = "expiration_time"


def definitions(prefix: str = "") -> Mapping[str, Definition]:
    by_activity = {"gsi1": ("gsi1pk", "gsi1sk")}
    return {
        "devices": table_definition(f"{prefix}devices", ("hardware_id",), by_activity),
        "device_readings": table_definition(
            f"{prefix}device_readings", ("hardware_id", "ts_batch"), {}
        ),
        "processed_batches": table_definition(f"{prefix}processed_batches", ("batch_id",), {}),
        "api_keys": table_definition(
            f"{prefix}api_keys",
            ("key_id",),
            {"api_key_hash_index": ("api_key_hash",), **by_activity},
        ),
        "events": event_table_definition(f"{prefix}telemetry_events"),
    }


_WITH_TTL = ("device_readings", "processed_batches")


def table_specs(prefix: str = "") -> Sequence[TableSpec]:
    """All tables with their TTLs; infrastructure code uses them too."""
    return [
        TableSpec(definition, ttl=TTL_ATTRIBUTE if name in _WITH_TTL else None)
        for name, definition in definitions(prefix).items()
    ]


class TelemetryTables(TableSet):
    def __init__(self, engine: Dynamo, *, prefix: str = "") -> None:
        super().__init__(engine, table_specs(prefix))
        self.devices, self.readings, self.markers, self.keys, _ = (
            Table(engine, name) for name in self.table_names
        )
        self.events = EventItems(engine, self.table_names[-1])

    @property
    def table_names(self) -> list[str]:
        return [spec.name for spec in self.specs]

    async def empty(self) -> None:
        for name in self.table_names:
            await Table(self.engine, name).delete_all(keep=STATE_KEY)


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
