"""`sandyard tables` with the Broker and Telemetry both on DynamoDB, as processes."""

from pathlib import Path
from uuid import uuid4

import pytest

from sandyard.broker.pool.model import Claim, Status
from sandyard.broker.stores.dynamodb import DynamoPoolStore
from sandyard.kit.clock import SystemClock
from sandyard.telemetry.verification import verify
from tests.faults.broker.test_tables import item
from tests.support.broker.pools import NOW, check_history
from tests.support.servers.processes import run_sandyard
from tests.support.storage.engines import AWS_ENVIRONMENT, pool_table
from tests.support.telemetry.engines import (
    DEVICE,
    on_dynamodb,
    registration,
    service_on,
    telemetry_tables,
)


@pytest.fixture
def environment(dynamo_url: str) -> dict[str, str]:
    name = uuid4().hex[:12]
    return AWS_ENVIRONMENT | {
        "POOL_STORE": "dynamodb",
        "TELEMETRY_STORE": "dynamodb",
        "DDB_ENDPOINT_URL": dynamo_url,
        "DDB_TABLE_NAME": f"Pool-{name}",
        "TELEMETRY_TABLE_PREFIX": f"t-{name}-",
    }


def run(step: str, *options: str, environment: dict[str, str], tmp_path: Path) -> list[str]:
    process = run_sandyard(
        "tables", step, *options, environment=environment, log=tmp_path / "stderr"
    )
    output, _ = process.communicate(timeout=60)
    assert process.returncode == 0, (tmp_path / "stderr").read_text()
    return output.decode().splitlines()


def test_create_makes_the_tables_of_both_parts(tmp_path: Path, environment: dict[str, str]) -> None:
    pool, prefix = environment["DDB_TABLE_NAME"], environment["TELEMETRY_TABLE_PREFIX"]
    telemetry = ("devices", "device_readings", "processed_batches", "api_keys", "telemetry_events")
    names = [pool, f"{pool}Events", *(f"{prefix}{name}" for name in telemetry)]
    mode = ("--billing-mode", "provisioned")
    lines = run("create", *mode, environment=environment, tmp_path=tmp_path)
    assert [line for line in lines if line[0] != " "] == [f"{name}: created" for name in names]
    scaled = f"table/{pool} dynamodb:table:ReadCapacityUnits 5 to 4000, target 70 %"
    assert f"  auto scaling: {scaled}" in lines
    assert f"table/{prefix}devices/index/gsi1 dynamodb:index:WriteCapacityUnits" in "".join(lines)
    again = run("create", environment=environment, tmp_path=tmp_path)
    assert again == [f"{name}: exists" for name in names]


async def test_adopt_takes_over_what_an_earlier_version_wrote_in_both_parts(
    tmp_path: Path, dynamo_url: str, environment: dict[str, str]
) -> None:
    pool_name, prefix = environment["DDB_TABLE_NAME"], environment["TELEMETRY_TABLE_PREFIX"]
    async with (
        pool_table(dynamo_url, name=pool_name) as pool,
        telemetry_tables(dynamo_url, prefix=prefix) as tables,
    ):
        await pool.table.put({"PK": "LAYOUT", "SK": "META", "version": 1})
        await pool.table.put(item(1, Status.AVAILABLE))
        await pool.table.put(item(2, Status.ALLOCATED, track="a"))
        await tables.create()
        stores = on_dynamodb(tables)
        await service_on(stores, SystemClock()).register(registration(), key_id="test")
        await tables.devices.update({"hardware_id": DEVICE}, "REMOVE #sequence", {})
        assert run("adopt", environment=environment, tmp_path=tmp_path) == [
            f"{pool_name}: 1 allocations, 1 leases added, 0 were there",
            f"{pool_name}Events: 2 baseline events added",
            "telemetry: 1 devices and keys adopted",
        ]
        assert len(run("check", environment=environment, tmp_path=tmp_path)) == 7
        store = DynamoPoolStore(pool, clock=SystemClock(), prefetch_size=15)
        repeat = await store.claim(Claim("a", "a", NOW))
        assert repeat is not None
        assert (repeat.is_new, repeat.lease.sandbox_id) == (False, "s2")
        await check_history(store)
        report = await verify(stores.telemetry, stores.keys, stores.log)
        assert (report.subjects, report.problems) == (1, [])
