"""`sandyard tables` with the Broker and Telemetry both on DynamoDB, as processes."""

from pathlib import Path
from uuid import uuid4

import pytest

from tests.support.servers.processes import run_sandyard
from tests.support.storage.engines import AWS_ENVIRONMENT


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
    scaled = f"table/{pool} dynamodb:table:ReadCapacityUnits 20 to 4000, target 70 %"
    assert f"  auto scaling: {scaled}" in lines
    assert f"table/{prefix}devices/index/gsi1 dynamodb:index:WriteCapacityUnits" in "".join(lines)
    again = run("create", environment=environment, tmp_path=tmp_path)
    assert again == [f"{name}: exists" for name in names]
