"""Telemetry's events lead to its states: after races, on every engine, and from an older schema."""

import asyncio
import random
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path

import pytest
import sqlalchemy as sa
from sandyard.telemetry.stores.dynamo_adoption import adopt

from sandyard.kit import ids
from sandyard.kit.dynamo.values import Item
from sandyard.kit.events import EventQuery
from sandyard.kit.sql.database import Database, PostgresDatabase, SqliteDatabase
from sandyard.telemetry.keys import ApiKeys
from sandyard.telemetry.stores.sql import MIGRATIONS
from sandyard.telemetry.verification import verify
from tests.support.clocks import ManualClock
from tests.support.storage.engines import SQL_ENGINES, STORE_ENGINES, create_database
from tests.support.telemetry.engines import (
    DEVICE,
    NOW,
    Stores,
    find_device,
    hardware,
    items_of,
    on_sql,
    register,
    registration,
    service_on,
    telemetry_replicas,
)

DEVICES = 4
ROUNDS = 12


@pytest.fixture(params=STORE_ENGINES)
async def replicas(
    request: pytest.FixtureRequest, tmp_path: Path, postgres_url: str, dynamo_url: str
) -> AsyncIterator[list[Stores]]:
    count = 1 if request.param == "sqlite" else 3
    async with telemetry_replicas(
        request.param, tmp_path, postgres_url, dynamo_url, count=count
    ) as replicas:
        yield replicas


def keys_on(stores: Stores) -> ApiKeys:
    return ApiKeys(
        stores.keys,
        peppers=["pepper"],
        clock=ManualClock(NOW),
        make_key_id=ids.uuid4,
        make_api_key=ids.device_api_key,
    )


async def live(stores: Stores, seed: int) -> None:
    """A replica's share of a busy day: boards that boot, are renamed, keys that come and go."""
    chance = random.Random(seed)
    service, keys = service_on(stores, ManualClock(NOW + seed)), keys_on(stores)
    for _ in range(ROUNDS):
        device = hardware(chance.randrange(DEVICES))
        said = replace(registration(device), firmware_version=chance.choice("123"))
        await service.register(said, key_id="k")
        await service.rename_device(device, chance.choice(["attic", "cellar", None]))
        new = await keys.create(description=chance.choice([None, "a key"]))
        if chance.random() < 0.5:
            await asyncio.gather(keys.revoke(new.key_id), keys.revoke(new.key_id))


async def test_events_lead_to_the_states_after_any_run(replicas: list[Stores]) -> None:
    await asyncio.gather(*(live(each, seed) for seed, each in enumerate(replicas * 3)))
    stores = replicas[0]
    report = await verify(stores.telemetry, stores.keys, stores.log)
    assert report.problems == []
    assert report.subjects == DEVICES + len(replicas) * 3 * ROUNDS


async def test_a_lost_change_is_seen(replicas: list[Stores]) -> None:
    stores = replicas[0]
    await register(stores)
    device = await find_device(stores.telemetry, DEVICE)
    assert device is not None
    if stores.tables is not None:
        await stores.tables.devices.update(
            {"hardware_id": DEVICE}, "SET firmware_version = :v", {"v": "9"}
        )
    else:
        assert stores.database is not None
        statement = sa.text("UPDATE telemetry.devices SET firmware_version = '9'")
        await stores.database.write(lambda connection: connection.execute(statement))
    report = await verify(stores.telemetry, stores.keys, stores.log)
    assert [each.subject for each in report.problems] == [DEVICE]
    assert "firmware_version" in report.problems[0].message


async def test_no_event_holds_a_key_or_its_hash(replicas: list[Stores]) -> None:
    stores = replicas[0]
    new = await keys_on(stores).create(description="greenhouse")
    stored = await stores.keys.find_key(new.key_id)
    assert stored is not None
    page = await stores.log.page(EventQuery(subject=new.key_id), limit=10, cursor=None)
    [logged] = page.items
    assert logged.event.kind == "key.created"
    assert new.api_key not in str(logged)
    assert stored.api_key_hash not in str(logged)


@pytest.mark.parametrize("engine", SQL_ENGINES)
async def test_rows_from_before_the_log_get_a_baseline(
    engine: str, tmp_path: Path, postgres_url: str
) -> None:
    database: Database = SqliteDatabase(tmp_path / "telemetry.db", schema="telemetry")
    if engine == "postgresql":
        await database.close()
        url = sa.make_url(await create_database(postgres_url))
        database = PostgresDatabase(url, pool_size=2)
    try:
        await MIGRATIONS.upgrade(database, "0001")
        await database.write(_fill_first_schema)
        await MIGRATIONS.upgrade(database)
        stores = on_sql(database)
        report = await verify(stores.telemetry, stores.keys, stores.log)
        assert (report.subjects, report.problems) == (3, [])
        await service_on(stores, ManualClock(NOW)).rename_device(hardware(1), "attic")
        assert (await verify(stores.telemetry, stores.keys, stores.log)).problems == []
    finally:
        await database.close()


def _fill_first_schema(connection: sa.Connection) -> None:
    at = "2026-01-15T08:00:00Z"
    for number in (1, 2):
        connection.execute(
            sa.text(
                "INSERT INTO telemetry.devices (hardware_id, confirmation_id, capabilities, "
                "first_registered_at, last_seen_at, last_boot_id, firmware_version, friendly_name) "
                "VALUES (:id, 'c', :capabilities, :at, :at, 'b', '1', NULL)"
            ),
            {"id": hardware(number), "capabilities": '{"sensors": ["bme280"]}', "at": at},
        )
    connection.execute(
        sa.text(
            "INSERT INTO telemetry.api_keys (key_id, api_key_hash, created_at, last_used_at, "
            "is_active, description) VALUES ('k', 'h', :at, NULL, :yes, 'greenhouse')"
        ),
        {"yes": True, "at": at},
    )


async def test_items_from_before_the_log_are_adopted_once(dynamo_url: str, tmp_path: Path) -> None:
    async with telemetry_replicas("dynamodb", tmp_path, "", dynamo_url) as [stores]:
        assert stores.tables is not None
        await register(stores, hardware(1), hardware(2))
        await keys_on(stores).create(description=None)
        for name in ("devices", "keys"):
            await _forget_the_log(stores, name)
        assert await adopt(stores.tables, clock=ManualClock(NOW)) == 3
        assert await adopt(stores.tables, clock=ManualClock(NOW)) == 0
        report = await verify(stores.telemetry, stores.keys, stores.log)
        assert (report.subjects, report.problems) == (3, [])


async def test_an_item_from_before_the_log_adopts_itself_when_it_changes(
    dynamo_url: str, tmp_path: Path
) -> None:
    async with telemetry_replicas("dynamodb", tmp_path, "", dynamo_url) as [stores]:
        await register(stores, hardware(1))
        await _forget_the_log(stores, "devices")
        await service_on(stores, ManualClock(NOW)).rename_device(hardware(1), "attic")
        assert (await verify(stores.telemetry, stores.keys, stores.log)).problems == []


async def _forget_the_log(stores: Stores, name: str) -> None:
    """As version 0.1 left them: no sequence, no events."""
    assert stores.tables is not None
    table = getattr(stores.tables, name)
    for item in await items_of(stores.tables, name):
        key: Item = {field: item[field] for field in ("hardware_id", "key_id") if field in item}
        await table.update(key, "REMOVE #sequence", {})
        [subject] = key.values()
        await stores.tables.events.table.delete({"subject": subject, "sequence": 1})
