"""Telemetry's events lead to its states: after races, on every engine, and from an older schema."""

import asyncio
import random
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path

import pytest
import sqlalchemy as sa

from sandyard.kit import ids
from sandyard.kit.changes.events import EventQuery
from sandyard.telemetry.keys import ApiKeys
from sandyard.telemetry.verification import verify
from tests.support.clocks import ManualClock
from tests.support.storage.engines import STORE_ENGINES
from tests.support.telemetry.engines import (
    DEVICE,
    NOW,
    Stores,
    find_device,
    hardware,
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
