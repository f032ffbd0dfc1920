"""DynamoDB tables: their definitions, creating them, and checking existing ones."""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from sandyard.kit.dynamo.client import Dynamo, TableMissingError
from sandyard.kit.errors import UnavailableError

Definition = dict[str, Any]
"""A table in the form of `CreateTable`; infrastructure code uses it too."""
Billed = Callable[[Definition], Definition]
"""`on_demand` or `provisioned`."""
Key = tuple[str, ...]
"""The attributes of a key: the partition key, and the sort key if there is one."""

CREATED = "created"
EXISTS = "exists"
_ACTIVE_SEC = 60
_FILLED_SEC = 3600
"""Building an index over a large table takes long."""


class TableUnfitError(UnavailableError):
    """The layout of a DynamoDB table does not match what this part needs."""


@dataclass(frozen=True, slots=True)
class TableSpec:
    """A table, and its TTL attribute if it has one."""

    definition: Definition
    ttl: str | None = None

    @property
    def name(self) -> str:
        name: str = self.definition["TableName"]
        return name


def table_definition(
    name: str, key: Key, indexes: Mapping[str, Key], *, numbers: Sequence[str] = ()
) -> Definition:
    """A table with on-demand billing; key attributes are strings unless listed as numbers."""
    attributes = dict.fromkeys([*key, *(each for keys in indexes.values() for each in keys)])
    definition: dict[str, Any] = {
        "TableName": name,
        "BillingMode": "PAY_PER_REQUEST",
        "AttributeDefinitions": [
            {"AttributeName": each, "AttributeType": "N" if each in numbers else "S"}
            for each in attributes
        ],
        "KeySchema": _key_schema(key),
    }
    if indexes:
        definition["GlobalSecondaryIndexes"] = [
            {
                "IndexName": index,
                "KeySchema": _key_schema(keys),
                "Projection": {"ProjectionType": "ALL"},
            }
            for index, keys in indexes.items()
        ]
    return definition


def on_demand(definition: Definition) -> Definition:
    return definition


def provisioned(definition: Definition) -> Definition:
    """The same table with provisioned capacity, at the minimum of its auto scaling."""
    indexes = [
        index | {"ProvisionedThroughput": _LEAST_CAPACITY}
        for index in definition.get("GlobalSecondaryIndexes", ())
    ]
    return {
        **definition,
        "BillingMode": "PROVISIONED",
        "ProvisionedThroughput": _LEAST_CAPACITY,
        **({"GlobalSecondaryIndexes": indexes} if indexes else {}),
    }


@dataclass(frozen=True, slots=True)
class ScalingTarget:
    """Parameters for registering a provisioned table with Application Auto Scaling, and the target
    utilization in percent of its target-tracking policy."""

    resource_id: str
    dimension: str
    least: int
    most: int = 4000
    utilization: int = 70

    def __str__(self) -> str:
        capacity = f"{self.least} to {self.most}, target {self.utilization} %"
        return f"auto scaling: {self.resource_id} {self.dimension} {capacity}"


def scaling_targets(definition: Definition) -> list[ScalingTarget]:
    """One for reads and one for writes, for the table and for each index."""
    table = f"table/{definition['TableName']}"
    indexes = [each["IndexName"] for each in definition.get("GlobalSecondaryIndexes", ())]
    resources = [(table, "table"), *((f"{table}/index/{name}", "index") for name in indexes)]
    return [
        ScalingTarget(resource, f"dynamodb:{kind}:{capacity}", least)
        for resource, kind in resources
        for capacity, least in _LEAST_CAPACITY.items()
    ]


_LEAST_CAPACITY = {"ReadCapacityUnits": 20, "WriteCapacityUnits": 10}


class TableSet:
    """The tables of a part, whether they exist or not."""

    def __init__(self, engine: Dynamo, specs: Sequence[TableSpec]) -> None:
        self.engine = engine
        self.specs = specs

    @property
    def definitions(self) -> Sequence[Definition]:
        return [spec.definition for spec in self.specs]

    async def create(self, billed: Billed = on_demand) -> Mapping[str, str]:
        return {
            spec.name: await create_table(self.engine, billed(spec.definition), ttl=spec.ttl)
            for spec in self.specs
        }

    async def check(self) -> None:
        for definition in self.definitions:
            await check_table(self.engine, definition)

    async def close(self) -> None:
        await self.engine.close()


async def create_table(engine: Dynamo, definition: Definition, *, ttl: str | None) -> str:
    """Create the table with a TTL on this attribute, or its missing indexes; returns what was
    created."""
    name = definition["TableName"]
    try:
        actual = await _describe(engine, name)
    except TableMissingError:
        await engine.call("CreateTable", definition)
    else:
        return await _add_indexes(engine, definition, actual)
    await _wait_until_active(engine, name, _ACTIVE_SEC)
    if ttl is not None:
        specification = {"AttributeName": ttl, "Enabled": True}
        await engine.call(
            "UpdateTimeToLive", {"TableName": name, "TimeToLiveSpecification": specification}
        )
    return CREATED


async def _add_indexes(engine: Dynamo, definition: Definition, actual: dict[str, Any]) -> str:
    """One at a time, as AWS requires; each is backfilled before the next."""
    name = definition["TableName"]
    there = {index["IndexName"] for index in actual.get("GlobalSecondaryIndexes", [])}
    wanted = definition.get("GlobalSecondaryIndexes", ())
    missing = [index for index in wanted if index["IndexName"] not in there]
    for index in missing:
        await _wait_until_active(engine, name, _FILLED_SEC)
        update = {
            "TableName": name,
            "AttributeDefinitions": definition["AttributeDefinitions"],
            "GlobalSecondaryIndexUpdates": [{"Create": _billed_as(actual, index)}],
        }
        await engine.call("UpdateTable", update)
    await _wait_until_active(engine, name, _FILLED_SEC)
    added = ", ".join(index["IndexName"] for index in missing)
    return f"exists, index added: {added}" if added else EXISTS


def _billed_as(actual: dict[str, Any], index: dict[str, Any]) -> dict[str, Any]:
    """The index with provisioned throughput if and only if the table has it."""
    summary = actual.get("BillingModeSummary", {})
    if summary.get("BillingMode") == "PAY_PER_REQUEST":
        return {key: value for key, value in index.items() if key != "ProvisionedThroughput"}
    return {"ProvisionedThroughput": _LEAST_CAPACITY, **index}


async def _wait_until_active(engine: Dynamo, name: str, seconds: float) -> None:
    """Polls, as AWS has no event for it."""
    try:
        async with asyncio.timeout(seconds):
            while not _is_active(await _describe(engine, name)):  # noqa: ASYNC110
                await asyncio.sleep(0.5)
    except TimeoutError as error:
        raise UnavailableError(
            f"The table {name} or one of its indexes is still being created. Run this again later."
        ) from error


def _is_active(actual: dict[str, Any]) -> bool:
    indexes = actual.get("GlobalSecondaryIndexes", [])
    states = {actual["TableStatus"], *(index.get("IndexStatus", "ACTIVE") for index in indexes)}
    return states == {"ACTIVE"}


async def check_table(engine: Dynamo, definition: Definition) -> None:
    """Raise TableMissingError or TableUnfitError unless keys and indexes match the definition."""
    name = definition["TableName"]
    actual = await _describe(engine, name)
    if not _same_keys(actual["KeySchema"], definition["KeySchema"]):
        raise TableUnfitError(
            f"The table {name} does not have the key {_names(definition['KeySchema'])}."
        )
    there = {
        index["IndexName"]: index["KeySchema"] for index in actual.get("GlobalSecondaryIndexes", [])
    }
    for index in definition.get("GlobalSecondaryIndexes", ()):
        keys = there.get(index["IndexName"])
        if keys is None or not _same_keys(keys, index["KeySchema"]):
            raise TableUnfitError(
                f"The table {name} lacks the index {index['IndexName']} on "
                f"{_names(index['KeySchema'])}."
            )


async def _describe(engine: Dynamo, name: str) -> dict[str, Any]:
    answer = await engine.call("DescribeTable", {"TableName": name})
    description: dict[str, Any] = answer["Table"]
    return description


def _key_schema(key: Key) -> list[dict[str, str]]:
    return [
        {"AttributeName": attribute, "KeyType": kind}
        for attribute, kind in zip(key, ("HASH", "RANGE"), strict=False)
    ]


def _names(keys: Sequence[dict[str, str]]) -> str:
    return " and ".join(key["AttributeName"] for key in keys)


def _same_keys(actual: Sequence[dict[str, str]], wanted: Sequence[dict[str, str]]) -> bool:
    def plain(keys: Sequence[dict[str, str]]) -> set[tuple[str, str]]:
        return {(key["AttributeName"], key["KeyType"]) for key in keys}

    return plain(actual) == plain(wanted)
