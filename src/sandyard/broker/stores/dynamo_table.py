"""The pool's table on DynamoDB: its definition, making it, and whether it is fit for use."""

from dataclasses import dataclass

from sandyard.broker.model import Status
from sandyard.kit.dynamo import Dynamo
from sandyard.kit.dynamo_items import Table
from sandyard.kit.dynamo_tables import (
    Definition,
    TableUnfitError,
    check_table,
    create_table,
    table_definition,
)
from sandyard.kit.dynamo_values import Item

LAYOUT_KEY: Item = {"PK": "LAYOUT", "SK": "META"}
LAYOUT_VERSION = 1
TTL_ATTRIBUTE = "ttl"


@dataclass(frozen=True, slots=True)
class TableNames:
    table: str = "SandboxPool"
    status_index: str = "StatusIndex"
    track_index: str = "TrackIndex"
    idempotency_index: str = "IdempotencyIndex"


def definition(names: TableNames) -> Definition:
    indexes = {
        names.status_index: "status",
        names.track_index: "allocated_to_track",
        names.idempotency_index: "idempotency_key",
    }
    return table_definition(
        names.table,
        ("PK", "SK"),
        {index: (attribute, "allocated_at") for index, attribute in indexes.items()},
        numbers=["allocated_at"],
    )


class PoolTable:
    def __init__(self, engine: Dynamo, names: TableNames) -> None:
        self.names = names
        self.table = Table(engine, names.table)
        self.status_index = names.status_index

    async def create(self) -> bool:
        """Make the table if it is not there; False if it was."""
        made = await create_table(self.table.engine, definition(self.names), ttl=TTL_ATTRIBUTE)
        if made:
            await self.mark_layout()
        return made

    async def check(self) -> None:
        """Raise unless keys and indexes are as defined and every lease has its item."""
        await check_table(self.table.engine, definition(self.names))
        layout = await self.table.get(LAYOUT_KEY)
        if layout is not None and layout.get("version") == LAYOUT_VERSION:
            return
        if await self._has_rows():
            raise TableUnfitError(
                f"The table {self.names.table} was filled by another program and has no leases "
                "for its allocations. Run `sandyard tables adopt`."
            )
        await self.mark_layout()

    async def mark_layout(self) -> None:
        await self.table.put({**LAYOUT_KEY, "version": LAYOUT_VERSION})

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
