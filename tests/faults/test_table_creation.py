"""Making tables on DynamoDB: billing modes, and indexes that a table lacks."""

from collections.abc import AsyncIterator
from typing import Any
from uuid import uuid4

import pytest

from sandyard.broker.pool.model import Claim
from sandyard.broker.stores.dynamo_table import PoolTable, TableNames, definition
from sandyard.broker.stores.dynamodb import DynamoPoolStore
from sandyard.kit.clock import SystemClock
from sandyard.kit.dynamo.event_items import event_table_definition
from sandyard.kit.dynamo.tables import (
    Billed,
    Definition,
    TableUnfitError,
    create_table,
    on_demand,
    provisioned,
    scaling_targets,
)
from tests.support.broker.pools import NOW, fill, row
from tests.support.storage.engines import pool_table


@pytest.fixture
async def pool(dynamo_url: str) -> AsyncIterator[PoolTable]:
    """A pool whose tables are not there yet."""
    async with pool_table(dynamo_url) as other:
        yield PoolTable(other.table.engine, TableNames(table=f"Pool-{uuid4().hex[:12]}"))


def without_index(whole: Definition, *names: str) -> Definition:
    """The definition as it would be without these indexes, and what only they need."""
    kept = [each for each in whole["GlobalSecondaryIndexes"] if each["IndexName"] not in names]
    schemas = [whole["KeySchema"], *(each["KeySchema"] for each in kept)]
    used = {key["AttributeName"] for schema in schemas for key in schema}
    attributes = [a for a in whole["AttributeDefinitions"] if a["AttributeName"] in used]
    return {**whole, "GlobalSecondaryIndexes": kept, "AttributeDefinitions": attributes}


async def described(pool: PoolTable) -> dict[str, Any]:
    answer = await pool.table.engine.call("DescribeTable", {"TableName": pool.names.table})
    table: dict[str, Any] = answer["Table"]
    return table


@pytest.mark.parametrize("billed", [on_demand, provisioned])
async def test_missing_indexes_are_added_and_filled(pool: PoolTable, billed: Billed) -> None:
    whole = billed(definition(pool.names))
    await pool.table.engine.call(
        "CreateTable", without_index(whole, "StatusIndex", "IdempotencyIndex")
    )
    await pool.mark_layout()
    events = event_table_definition(pool.names.events)
    await create_table(pool.table.engine, events, ttl=None)
    store = DynamoPoolStore(pool, clock=SystemClock(), prefetch_size=15)
    await fill(store, 3)
    with pytest.raises(TableUnfitError, match="StatusIndex"):
        await pool.check()
    made = await pool.create()
    assert made[pool.names.table] == "exists, index added: StatusIndex, IdempotencyIndex"
    await pool.check()
    claimed = await store.claim(Claim("t", "t", NOW))
    assert claimed is not None
    assert (await row(store, claimed.lease.sandbox_id)).allocated_to_track == "t"
    assert (await pool.create())[pool.names.table] == "exists"
    assert {
        each.get("IndexStatus") for each in (await described(pool))["GlobalSecondaryIndexes"]
    } == {"ACTIVE"}


async def test_an_index_on_other_keys_is_not_replaced(pool: PoolTable) -> None:
    whole = definition(pool.names)
    for index in whole["GlobalSecondaryIndexes"]:
        if index["IndexName"] == "TrackIndex":
            index["KeySchema"] = [{"AttributeName": "allocated_to_track", "KeyType": "HASH"}]
    await pool.table.engine.call("CreateTable", whole)
    assert (await pool.create())[pool.names.table] == "exists"
    with pytest.raises(TableUnfitError, match="TrackIndex"):
        await pool.check()


async def test_a_provisioned_table_has_capacity_and_so_has_each_index(pool: PoolTable) -> None:
    made = await pool.create(provisioned)
    assert set(made.values()) == {"created"}
    await pool.check()
    table = await described(pool)
    assert table.get("BillingModeSummary", {}).get("BillingMode") != "PAY_PER_REQUEST"
    for each in (table, *table["GlobalSecondaryIndexes"]):
        capacity = each["ProvisionedThroughput"]
        assert (capacity["ReadCapacityUnits"], capacity["WriteCapacityUnits"]) == (20, 10)


def test_every_table_and_index_has_a_target_for_reads_and_one_for_writes() -> None:
    targets = scaling_targets(definition(TableNames()))
    assert len(targets) == 8
    assert [(each.resource_id, each.dimension) for each in targets[:3]] == [
        ("table/SandboxPool", "dynamodb:table:ReadCapacityUnits"),
        ("table/SandboxPool", "dynamodb:table:WriteCapacityUnits"),
        ("table/SandboxPool/index/StatusIndex", "dynamodb:index:ReadCapacityUnits"),
    ]
    assert str(targets[0]).endswith("20 to 4000, target 70 %")
    assert str(targets[1]).endswith("10 to 4000, target 70 %")
