"""The pool's tables on DynamoDB: their definitions, their creation and their check."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from sandyard.broker.pool.model import Sandbox, Status
from sandyard.broker.pool.stores.dynamo_items import sandbox_attributes, sandbox_key
from sandyard.kit.changes.transitions import Transition
from sandyard.kit.dynamo import tables
from sandyard.kit.dynamo.client import Dynamo
from sandyard.kit.dynamo.event_items import EventItems, event_table_definition
from sandyard.kit.dynamo.items import Table
from sandyard.kit.dynamo.store_states import STATE_KEY
from sandyard.kit.dynamo.transitions import change_action
from sandyard.kit.dynamo.values import Item

LAYOUT_KEY: Item = {"PK": "LAYOUT", "SK": "META"}
LAYOUT_REVISION = 2
LAYOUT: Item = {**LAYOUT_KEY, "revision": LAYOUT_REVISION}
TTL_ATTRIBUTE = "ttl"


@dataclass(frozen=True, slots=True)
class TableNames:
    table: str = "SandboxPool"
    status_index: str = "StatusIndex"
    track_index: str = "TrackIndex"
    idempotency_index: str = "IdempotencyIndex"
    own_events: str | None = None

    @property
    def events(self) -> str:
        """The name of the event table; by default derived from the pool's."""
        return self.own_events or f"{self.table}Events"


def definition(names: TableNames) -> tables.Definition:
    indexes = {
        names.status_index: "status",
        names.track_index: "allocated_to_track",
        names.idempotency_index: "idempotency_key",
    }
    return tables.table_definition(
        names.table,
        ("PK", "SK"),
        {index: (attribute, "allocated_at") for index, attribute in indexes.items()},
        numbers=["allocated_at"],
    )


def table_specs(names: TableNames) -> tuple[tables.TableSpec, tables.TableSpec]:
    """The pool's table and its event table; infrastructure code uses them too."""
    events = tables.TableSpec(event_table_definition(names.events))
    return tables.TableSpec(definition(names), ttl=TTL_ATTRIBUTE), events


class PoolTable(tables.TableSet):
    """The pool's table and its event table."""

    def __init__(self, engine: Dynamo, names: TableNames) -> None:
        super().__init__(engine, table_specs(names))
        self.names = names
        self.table = Table(engine, names.table)
        self.events = EventItems(engine, names.events)
        self.status_index = names.status_index

    async def create(self, billed: tables.Billed = tables.on_demand) -> Mapping[str, str]:
        made = await super().create(billed)
        if made[self.names.table] == tables.CREATED:
            await self.mark_layout()
        return made

    async def check(self) -> None:
        """Raise unless keys and indexes are as defined and every row has its lease and events."""
        await tables.check_table(self.table.engine, definition(self.names))
        layout = await self.table.get(LAYOUT_KEY) or {}
        is_marked = layout.get("revision") == LAYOUT_REVISION
        if not is_marked and await self._has_rows():
            raise tables.TableUnfitError(
                f"The table {self.names.table} was filled by another program. Use an empty table."
            )
        await tables.check_table(self.table.engine, event_table_definition(self.names.events))
        if not is_marked:
            await self.mark_layout()

    async def empty(self) -> None:
        await self.table.delete_all(keep=LAYOUT_KEY)
        await self.events.table.delete_all(keep=STATE_KEY)

    def change_action(self, transition: Transition[Sandbox]) -> dict[str, Any]:
        before, after = transition.before, transition.result
        if before is None:
            raise ValueError("there is nothing to change")
        key = sandbox_key(after.sandbox_id)
        return change_action(self.table, key, sandbox_attributes(before), sandbox_attributes(after))

    async def mark_layout(self) -> None:
        await self.table.put(LAYOUT)

    async def _has_rows(self) -> bool:
        for status in Status:
            items, _, _ = await self.table.query(
                index=self.status_index,
                condition="#status = :status",
                values={"status": status},
                limit=1,
            )
            if items:
                return True
        return False
