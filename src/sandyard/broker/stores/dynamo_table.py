"""The pool's table on DynamoDB: its definition, making it, and whether it is fit for use."""

import asyncio
from dataclasses import dataclass
from typing import Any

from sandyard.broker.model import Status
from sandyard.kit.dynamo import Dynamo, Table, TableMissingError
from sandyard.kit.dynamo_values import Item
from sandyard.kit.errors import UnavailableError

LAYOUT_KEY: Item = {"PK": "LAYOUT", "SK": "META"}
LAYOUT_VERSION = 1
TTL_ATTRIBUTE = "ttl"

_ACTIVE_SEC = 60


class TableUnfitError(UnavailableError):
    """The DynamoDB table is not laid out as the Broker needs it."""

    code = "TABLE_UNFIT"


@dataclass(frozen=True, slots=True)
class TableNames:
    table: str = "SandboxPool"
    status_index: str = "StatusIndex"
    track_index: str = "TrackIndex"
    idempotency_index: str = "IdempotencyIndex"


def definition(names: TableNames) -> dict[str, Any]:
    """The table as `CreateTable` takes it; infrastructure code uses this too."""
    indexes = {
        names.status_index: "status",
        names.track_index: "allocated_to_track",
        names.idempotency_index: "idempotency_key",
    }
    attributes = {"PK": "S", "SK": "S", "allocated_at": "N"} | dict.fromkeys(indexes.values(), "S")
    return {
        "TableName": names.table,
        "BillingMode": "PAY_PER_REQUEST",
        "AttributeDefinitions": [
            {"AttributeName": name, "AttributeType": kind} for name, kind in attributes.items()
        ],
        "KeySchema": _key_schema("PK", "SK"),
        "GlobalSecondaryIndexes": [
            {
                "IndexName": index,
                "KeySchema": _key_schema(attribute, "allocated_at"),
                "Projection": {"ProjectionType": "ALL"},
            }
            for index, attribute in indexes.items()
        ],
    }


class PoolTable:
    def __init__(self, engine: Dynamo, names: TableNames) -> None:
        self.names = names
        self.table = Table(engine, names.table)
        self.status_index = names.status_index

    async def create(self) -> bool:
        """Make the table if it is not there; False if it was."""
        try:
            await self._describe()
        except TableMissingError:
            await self.table.engine.call("CreateTable", definition(self.names))
        else:
            return False
        await self._until_active()
        ttl = {"AttributeName": TTL_ATTRIBUTE, "Enabled": True}
        await self.table.engine.call(
            "UpdateTimeToLive",
            {"TableName": self.names.table, "TimeToLiveSpecification": ttl},
        )
        await self.mark_layout()
        return True

    async def check(self) -> None:
        """Raise unless keys and indexes are as defined and every lease has its item."""
        self._check_keys(await self._describe())
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

    async def _describe(self) -> dict[str, Any]:
        answer = await self.table.engine.call("DescribeTable", {"TableName": self.names.table})
        description: dict[str, Any] = answer["Table"]
        return description

    async def _until_active(self) -> None:
        async with asyncio.timeout(_ACTIVE_SEC):
            while (await self._describe())["TableStatus"] != "ACTIVE":  # noqa: ASYNC110 - AWS has no event
                await asyncio.sleep(0.5)

    def _check_keys(self, actual: dict[str, Any]) -> None:
        wanted = definition(self.names)
        if not _same_keys(actual["KeySchema"], wanted["KeySchema"]):
            raise TableUnfitError(f"The table {self.names.table} does not have the keys PK and SK.")
        there = {
            index["IndexName"]: index["KeySchema"]
            for index in actual.get("GlobalSecondaryIndexes", [])
        }
        for index in wanted["GlobalSecondaryIndexes"]:
            keys = there.get(index["IndexName"])
            if keys is None or not _same_keys(keys, index["KeySchema"]):
                raise TableUnfitError(
                    f"The table {self.names.table} lacks the index {index['IndexName']} on "
                    + " and ".join(key["AttributeName"] for key in index["KeySchema"])
                    + "."
                )

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


def _key_schema(partition: str, sort: str) -> list[dict[str, str]]:
    return [
        {"AttributeName": partition, "KeyType": "HASH"},
        {"AttributeName": sort, "KeyType": "RANGE"},
    ]


def _same_keys(actual: list[dict[str, str]], wanted: list[dict[str, str]]) -> bool:
    def plain(keys: list[dict[str, str]]) -> set[tuple[str, str]]:
        return {(key["AttributeName"], key["KeyType"]) for key in keys}

    return plain(actual) == plain(wanted)
