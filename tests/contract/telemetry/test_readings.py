"""What every TelemetryStore promises of a reading and its marker."""

import asyncio
import random
from dataclasses import replace

import pytest

from sandyard.telemetry.model import Reading, Stored, TimeRange
from sandyard.telemetry.ports import TelemetryStore
from tests.contract.telemetry.readings import OTHER_BOOT_ID, keep, last_seen
from tests.support.telemetry.engines import (
    DEVICE,
    NOW_MS,
    OTHER_DEVICE,
    Stores,
    hardware,
    markers,
    reading,
    register,
    rename_on,
    stored,
)


async def stored_in_the_end(stores: Stores) -> set[str]:
    """The ids of what is stored, once no write of a caller that left comes after it any more."""
    found = {each.batch_id for each in await stored(stores)}
    quiet = 0
    while quiet < 5:
        await asyncio.sleep(0.1)
        now = {each.batch_id for each in await stored(stores)}
        quiet = quiet + 1 if now == found == await markers(stores) else 0
        found = now
    return found


class TestKeep:
    async def test_a_new_reading_is_there_as_it_was_sent(self, stores: Stores) -> None:
        await register(stores)
        await rename_on(stores.telemetry, DEVICE, "greenhouse")
        sent = reading(1)
        assert await keep(stores, sent) == {sent.batch_id: Stored(sent.content_hash, is_new=True)}
        [there] = await stored(stores)
        assert there == replace(sent, friendly_name="greenhouse")
        assert there.content_hash == sent.content_hash
        assert await markers(stores) == {sent.batch_id}

    async def test_a_reading_keeps_the_name_that_its_device_had_then(self, stores: Stores) -> None:
        await register(stores)
        for number, name in enumerate(("first", None, "second")):
            await rename_on(stores.telemetry, DEVICE, name)
            await keep(stores, reading(number))
        assert [each.friendly_name for each in await stored(stores)] == ["first", None, "second"]

    async def test_a_reading_has_the_time_when_it_arrived(self, stores: Stores) -> None:
        await register(stores)
        sent = reading(1)
        await keep(stores, sent, now_ms=NOW_MS + 90_500)
        await keep(stores, sent, now_ms=NOW_MS + 200_000)
        [there] = await stored(stores)
        assert there.received_at == NOW_MS + 90_000
        within = TimeRange(NOW_MS, NOW_MS + 10)
        page = await stores.telemetry.page_of_readings(DEVICE, within, limit=1, cursor=None)
        assert page.items[0].received_at == NOW_MS + 90_000

    async def test_a_second_time_it_is_not_new(self, stores: Stores) -> None:
        await register(stores)
        sent = reading(1)
        await keep(stores, sent)
        again = await keep(stores, sent, now_ms=NOW_MS + 1000)
        assert again == {sent.batch_id: Stored(sent.content_hash, is_new=False)}
        assert await stored(stores) == [sent]

    @pytest.mark.parametrize(
        "changes",
        [
            {"timestamp_ms": NOW_MS + 2},
            {"sensors": {"bme280_temp_c": 22.6}},
            {"sensor_status": {"bme280": "error"}},
            {"boot_id": OTHER_BOOT_ID},
            {"firmware_version": "1.0.17"},
            {"hardware_id": OTHER_DEVICE},
        ],
        ids=lambda changes: next(iter(changes)),
    )
    async def test_the_stored_content_of_an_id_is_returned_and_unchanged(
        self, stores: Stores, changes: dict[str, object]
    ) -> None:
        await register(stores, DEVICE, OTHER_DEVICE)
        sent = reading(1)
        await keep(stores, sent)
        other = replace(sent, **changes)  # type: ignore[arg-type]
        assert await keep(stores, other) == {sent.batch_id: Stored(sent.content_hash, is_new=False)}
        assert await stored(stores) == [sent]
        assert await stored(stores, OTHER_DEVICE) == []

    async def test_new_and_known_ones_come_together(self, stores: Stores) -> None:
        await register(stores, DEVICE, OTHER_DEVICE)
        await keep(stores, *(reading(n) for n in range(0, 100, 2)))
        everything = [reading(n) for n in range(100)]
        everything[50] = replace(everything[50], hardware_id=OTHER_DEVICE)
        random.Random(1).shuffle(everything)
        kept = await keep(stores, *everything)
        assert {batch_id for batch_id, each in kept.items() if each.is_new} == {
            reading(n).batch_id for n in range(1, 100, 2)
        }
        assert await stored(stores) == [reading(n) for n in range(100)]

    async def test_concurrent_requests_get_their_own_results(self, stores: Stores) -> None:
        """Of six at once one is known, one in part, one has another's ids, and three are new."""
        await register(stores, DEVICE, OTHER_DEVICE)
        requests = [[reading(n * 40 + k) for k in range(40)] for n in range(6)]
        await keep(stores, *requests[1], *requests[2][:7])
        requests[4] = [replace(each, hardware_id=OTHER_DEVICE) for each in requests[1]]
        devices = await stores.telemetry.find_devices([DEVICE, OTHER_DEVICE])
        told = await asyncio.gather(
            *(
                stores.telemetry.insert_readings(each, devices=devices, now_ms=NOW_MS)
                for each in requests
            )
        )
        assert [sum(each.is_new for each in one.values()) for one in told] == [40, 0, 33, 40, 0, 40]
        for sent, one in zip(requests, told, strict=True):
            assert one.keys() == {each.batch_id for each in sent}
        for each in requests[1]:
            assert told[4][each.batch_id] == Stored(each.content_hash, is_new=False)
        assert await stored(stores, OTHER_DEVICE) == []
        assert len(await stored(stores)) == 5 * 40
        assert await markers(stores) == {each.batch_id for each in await stored(stores)}

    async def test_many_readings_share_a_millisecond(self, stores: Stores) -> None:
        await register(stores)
        together = [reading(n, timestamp_ms=NOW_MS) for n in range(30)]
        await keep(stores, *together)
        assert await stored(stores) == together

    async def test_its_device_was_seen(self, stores: Stores) -> None:
        await register(stores, DEVICE, OTHER_DEVICE, hardware(7))
        await keep(stores, reading(1), reading(2, hardware_id=OTHER_DEVICE))
        assert await last_seen(stores) == NOW_MS
        assert await last_seen(stores, OTHER_DEVICE) == NOW_MS
        assert await last_seen(stores, hardware(7)) < NOW_MS
        await keep(stores, reading(1), now_ms=NOW_MS + 9000)
        assert await last_seen(stores) == NOW_MS + 9000

    async def test_last_seen_never_moves_back(self, stores: Stores) -> None:
        devices = await register(stores)
        for number, later in enumerate((0, -3_600_000, 1000, 0)):
            # Each time with the device as it was found at first, as a slow replica has it.
            await stores.telemetry.insert_readings(
                [reading(number)], devices=devices, now_ms=NOW_MS + later
            )
            assert await last_seen(stores) == NOW_MS + (1000 if number > 1 else 0)

    async def test_a_marker_and_its_reading_are_both_there_or_neither(self, stores: Stores) -> None:
        """Callers go away at any moment of their request."""
        devices = await register(stores)
        everything = [reading(n) for n in range(400)]
        randomness = random.Random(5)

        async def send_and_go(portion: list[Reading], after: float) -> None:
            sending = asyncio.create_task(
                stores.telemetry.insert_readings(portion, devices=devices, now_ms=NOW_MS)
            )
            await asyncio.wait([sending], timeout=after)
            sending.cancel()
            await asyncio.wait([sending])

        await asyncio.gather(
            *(
                send_and_go(everything[start : start + 20], randomness.uniform(0, 0.08))
                for start in range(0, 400, 20)
            )
        )
        before = await stored_in_the_end(stores)
        assert await markers(stores) == before
        kept = await keep(stores, *everything)
        assert {batch_id for batch_id, each in kept.items() if not each.is_new} == before
        assert await stored(stores) == everything
        assert await markers(stores) == {each.batch_id for each in everything}


async def test_the_schema_is_the_one_that_the_code_needs(telemetry_store: TelemetryStore) -> None:
    await telemetry_store.check()
