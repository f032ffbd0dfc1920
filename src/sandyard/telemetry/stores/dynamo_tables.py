"""Telemetry's tables on DynamoDB: the four for its data, and the event log."""

from collections.abc import Mapping, Sequence

from sandyard.kit.dynamo import Dynamo
from sandyard.kit.dynamo_items import Table
from sandyard.kit.dynamo_tables import (
    Billed,
    Definition,
    check_table,
    create_table,
    on_demand,
    table_definition,
)
from sandyard.kit.event_items import EventItems, event_table_definition

TTL_ATTRIBUTE = "expiration_time"


def definitions(prefix: str = "") -> Mapping[str, Definition]:
    """Each table by its plain name, as `CreateTable` takes it."""
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


class TelemetryTables:
    def __init__(self, engine: Dynamo, *, prefix: str = "") -> None:
        self.engine = engine
        self._definitions = definitions(prefix)
        self.devices, self.readings, self.markers, self.keys, _ = (
            Table(engine, name) for name in self.table_names
        )
        self.events = EventItems(engine, self.table_names[-1])

    @property
    def table_names(self) -> list[str]:
        return [definition["TableName"] for definition in self._definitions.values()]

    @property
    def definitions(self) -> Sequence[Definition]:
        return list(self._definitions.values())

    async def create(self, billed: Billed = on_demand) -> Mapping[str, str]:
        """Make the tables and indexes that are not there; by each table's name, what was made."""
        return {
            definition["TableName"]: await create_table(
                self.engine, billed(definition), ttl=TTL_ATTRIBUTE if name in _WITH_TTL else None
            )
            for name, definition in self._definitions.items()
        }

    async def check(self) -> None:
        for definition in self._definitions.values():
            await check_table(self.engine, definition)

    async def close(self) -> None:
        await self.engine.close()
