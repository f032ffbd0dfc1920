"""Tables of DynamoDB: their definitions, making them, and whether those that are there fit."""

import asyncio
from collections.abc import Mapping, Sequence
from typing import Any

from sandyard.kit.dynamo import Dynamo, TableMissingError
from sandyard.kit.errors import UnavailableError

Definition = dict[str, Any]
"""A table as `CreateTable` takes it; infrastructure code uses this too."""
Key = tuple[str, ...]
"""The attributes of a key: the partition's, and the sort's if it has one."""

_ACTIVE_SEC = 60


class TableUnfitError(UnavailableError):
    """A DynamoDB table is not laid out as this part needs it."""

    code = "TABLE_UNFIT"


def table_definition(
    name: str, key: Key, indexes: Mapping[str, Key], *, numbers: Sequence[str] = ()
) -> Definition:
    """A table billed by request; key attributes are texts unless they are named as numbers."""
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


async def create_table(engine: Dynamo, definition: Definition, *, ttl: str | None) -> bool:
    """Make the table, with a TTL on this attribute, if it is not there; False if it was."""
    name = definition["TableName"]
    try:
        await _describe(engine, name)
    except TableMissingError:
        await engine.call("CreateTable", definition)
    else:
        return False
    async with asyncio.timeout(_ACTIVE_SEC):
        while (await _describe(engine, name))["TableStatus"] != "ACTIVE":  # noqa: ASYNC110 - AWS has no event
            await asyncio.sleep(0.5)
    if ttl is not None:
        specification = {"AttributeName": ttl, "Enabled": True}
        await engine.call(
            "UpdateTimeToLive", {"TableName": name, "TimeToLiveSpecification": specification}
        )
    return True


async def check_table(engine: Dynamo, definition: Definition) -> None:
    """Raise TableMissingError or TableUnfitError unless keys and indexes are as defined."""
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
