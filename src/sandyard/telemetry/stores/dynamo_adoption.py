"""Adopts devices and keys that were written before there were events."""

from collections.abc import Callable
from typing import Any

from sandyard.kit.changes.events import actor
from sandyard.kit.changes.transitions import Cause, created, subject_of
from sandyard.kit.clock import Clock
from sandyard.kit.dynamo.client import TransactionRefusedError
from sandyard.kit.dynamo.items import Table
from sandyard.kit.dynamo.values import Item
from sandyard.telemetry.stores.dynamo_items import device_of, key_of
from sandyard.telemetry.stores.dynamo_tables import TelemetryTables


async def adopt(tables: TelemetryTables, *, clock: Clock) -> int:
    """Give each of them a sequence and a baseline event with its whole state; returns how many.
    Idempotent; may run under traffic."""
    return await _adopt(tables, tables.devices, device_of, clock) + await _adopt(
        tables, tables.keys, key_of, clock
    )


async def _adopt(
    tables: TelemetryTables, table: Table, entity_of: Callable[[Item], Any], clock: Clock
) -> int:
    adopted = 0
    async for items in table.scan():
        cause = Cause.by(actor("system"), clock)
        for entity in [entity_of(item) for item in items if "sequence" not in item]:
            [event] = created(entity, "baseline", cause).events
            numbered = table.update_action(
                {entity.SUBJECT: subject_of(entity)},
                "SET #sequence = :one",
                {"one": 1},
                condition="attribute_not_exists(#sequence)",
            )
            try:
                await table.transact(numbered, tables.events.put_action(event))
            except TransactionRefusedError:
                continue  # it was changed meanwhile, and so adopted
            adopted += 1
    return adopted
