"""Many senders of the same readings at the same instant, over several replicas."""

import asyncio
import random
from collections import Counter
from collections.abc import AsyncIterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from sandyard.telemetry.model import IntakeReport, RejectionCode
from sandyard.telemetry.service import Telemetry
from tests.support.clocks import ManualClock
from tests.support.storage.engines import STORE_ENGINES
from tests.support.telemetry.engines import (
    DAY,
    DEVICE,
    NOW,
    NOW_MS,
    OTHER_DEVICE,
    Stores,
    check_accounted,
    fill,
    hardware,
    markers,
    raw_reading,
    reading,
    register,
    registration,
    service_on,
    stored,
    telemetry_replicas,
)

REPLICAS = {"sqlite": 1, "postgresql": 4, "dynamodb": 4}

Request = list[dict[str, Any]]


@pytest.fixture(params=STORE_ENGINES)
async def replicas(
    request: pytest.FixtureRequest, tmp_path: Path, postgres_url: str, dynamo_url: str
) -> AsyncIterator[list[Stores]]:
    """Stores with connections of their own on one database, as separate processes would have."""
    async with telemetry_replicas(
        request.param, tmp_path, postgres_url, dynamo_url, count=REPLICAS[request.param]
    ) as replicas:
        await register(replicas[0], DEVICE, OTHER_DEVICE)
        yield replicas


async def send_all(replicas: Sequence[Stores], requests: Sequence[Request]) -> list[IntakeReport]:
    """All requests at once, spread over the replicas; each is answered for in full."""
    services: list[Telemetry] = [service_on(each, ManualClock(NOW)) for each in replicas]
    reports = await asyncio.gather(
        *(services[n % len(services)].ingest(raw) for n, raw in enumerate(requests))
    )
    for raw, report in zip(requests, reports, strict=True):
        check_accounted(raw, report)
    return reports


def acknowledgements(reports: Sequence[IntakeReport]) -> Counter[str]:
    return Counter(batch_id for report in reports for batch_id in report.acknowledged)


async def check_kept_once(replicas: Sequence[Stores], numbers: int) -> None:
    assert await stored(replicas[0]) == [reading(n) for n in range(numbers)]
    assert await markers(replicas[0]) == {reading(n).batch_id for n in range(numbers)}


async def test_fifty_senders_of_the_same_hundred_readings(replicas: list[Stores]) -> None:
    raw = [raw_reading(n) for n in range(100)]
    reports = await send_all(replicas, [raw] * 50)
    assert acknowledgements(reports) == Counter(each["batch_id"] for each in raw)
    assert all(not report.rejected for report in reports)
    await check_kept_once(replicas, 100)


async def test_each_in_another_order(replicas: list[Stores]) -> None:
    """Whoever locks in the order of the request meets another that locks the other way round."""
    randomness = random.Random(17)
    everything = [raw_reading(n) for n in range(40)]
    requests = [randomness.sample(everything, 40) for _ in range(40)]
    reports = await send_all(replicas, requests)
    assert acknowledgements(reports) == Counter(each["batch_id"] for each in everything)
    assert all(not report.rejected for report in reports)
    await check_kept_once(replicas, 40)


async def test_overlapping_halves(replicas: list[Stores]) -> None:
    randomness = random.Random(19)
    everything = [raw_reading(n) for n in range(80)]
    requests = [randomness.sample(everything, 40) for _ in range(20)]
    requests += [everything[start : start + 40] for start in range(0, 41, 4)]
    reports = await send_all(replicas, requests)
    assert acknowledgements(reports) == Counter(each["batch_id"] for each in everything)
    assert all(not report.rejected for report in reports)
    await check_kept_once(replicas, 80)


async def test_many_devices_in_every_request(replicas: list[Stores]) -> None:
    """Each request also marks all of its devices as seen, in whatever order it names them."""
    devices = [hardware(n) for n in range(20)]
    await register(replicas[0], *devices)
    randomness = random.Random(23)
    requests = []
    for sender in range(24):
        raw = [raw_reading(sender // 2, hardware_id=each) for each in devices]
        requests.append(randomness.sample(raw, 20))
    reports = await send_all(replicas, requests)
    assert set(acknowledgements(reports).values()) == {1}
    assert acknowledgements(reports).total() == 12 * 20
    for device in devices:
        assert len(await stored(replicas[0], device)) == 12
    found = await replicas[0].telemetry.find_devices(devices)
    assert {each.last_seen_at for each in found.values()} == {NOW_MS}


async def test_of_twenty_contents_under_one_id_one_is_acknowledged(
    replicas: list[Stores],
) -> None:
    contents = [raw_reading(1, sensors={"sender": n}) for n in range(18)]
    contents.append(raw_reading(1, timestamp_ms=NOW_MS + 77))
    contents.append(contents[0] | {"hardware_id": OTHER_DEVICE})
    reports = await send_all(replicas, [[each] for each in contents])
    [winner] = [raw for raw, report in zip(contents, reports, strict=True) if report.acknowledged]
    codes = Counter(each.code for report in reports for each in report.rejected)
    assert codes == {RejectionCode.BATCH_ID_CONFLICT: 19}
    assert not any(report.duplicates for report in reports)
    there = await stored(replicas[0]) + await stored(replicas[0], OTHER_DEVICE)
    assert [(each.hardware_id, each.timestamp_ms, each.sensors) for each in there] == [
        (winner["hardware_id"], winner["timestamp_ms"], winner["sensors"])
    ]


async def test_two_contents_of_many_readings_never_mix(replicas: list[Stores]) -> None:
    """Each id has one winner, and all others of its content are duplicates."""
    one = [raw_reading(n, sensors={"t": 1}) for n in range(40)]
    two = [raw_reading(n, sensors={"t": 2}) for n in range(40)]
    requests = [one, two[::-1], one[::-1], two] * 5
    reports = await send_all(replicas, requests)
    assert acknowledgements(reports) == Counter(each["batch_id"] for each in one)
    there = {each.batch_id: each.sensors for each in await stored(replicas[0])}
    for raw, report in zip(requests, reports, strict=True):
        refused = {each.index for each in report.rejected}
        for index, each in enumerate(raw):
            assert (there[each["batch_id"]] != each["sensors"]) == (index in refused)


async def test_registrations_and_readings_at_once(replicas: list[Stores]) -> None:
    services = [service_on(each, ManualClock(NOW + n)) for n, each in enumerate(replicas * 4)]
    before = await services[0].get_device(DEVICE)
    raw = [raw_reading(n) for n in range(20)]
    await asyncio.gather(
        *(each.ingest(raw) for each in services),
        *(each.register(registration(), key_id="test") for each in reversed(services)),
    )
    after = await services[0].get_device(DEVICE)
    assert after.confirmation_id == before.confirmation_id
    assert after.last_seen_at == NOW_MS + (len(services) - 1) * 1000
    await check_kept_once(replicas, 20)


async def test_markers_that_are_removed_meanwhile(tmp_path: Path, postgres_url: str) -> None:
    """Old ids that are used again for new readings, in the very moment they are forgotten."""
    later = NOW + 12 * DAY
    async with telemetry_replicas("postgresql", tmp_path, postgres_url, "", count=4) as replicas:
        await register(replicas[0], DEVICE)

        async def forget(stores: Stores) -> None:
            while await stores.expired.remove_markers(now_ms=later * 1000, limit=3):
                pass

        for turn in range(15):
            numbers = range(turn * 100, turn * 100 + 100)
            old = [reading(n, timestamp_ms=NOW_MS - 80 * DAY * 1000) for n in numbers]
            await fill(replicas[0], old, now_ms=NOW_MS - 30 * DAY * 1000)
            raw = [raw_reading(n, timestamp_ms=later * 1000 + n) for n in numbers]
            services = [service_on(each, ManualClock(later)) for each in replicas]
            *reports, _, _ = await asyncio.gather(
                *(each.ingest(raw) for each in services), forget(replicas[1]), forget(replicas[2])
            )
            for report in reports:
                assert isinstance(report, IntakeReport)
                check_accounted(raw, report)
