"""What every TelemetryStore promises, on every engine."""

import asyncio
import random
from collections.abc import Sequence
from dataclasses import replace

import pytest

from sandyard.kit import ids
from sandyard.kit.clock import rfc3339
from sandyard.kit.paging import InvalidCursorError, Page
from sandyard.telemetry.errors import NoReadingsError
from sandyard.telemetry.model import Bucket, Device, Kept, Reading, Retention, TimeRange
from sandyard.telemetry.ports import TelemetryStore
from sandyard.telemetry.service import Telemetry
from tests.clocks import ManualClock
from tests.telemetry_engines import (
    BOOT_ID,
    DAY,
    DEVICE,
    EVER,
    NOW,
    NOW_MS,
    OTHER_DEVICE,
    RETENTION,
    Stores,
    fill,
    hardware,
    markers,
    raw_reading,
    reading,
    register,
    registration,
    retention_job,
    service_on,
    stored,
)

OTHER_BOOT_ID = "550e8400-e29b-41d4-a716-446655440000"


async def keep(stores: Stores, *readings: Reading, now: int = NOW) -> dict[str, Kept]:
    devices = await stores.telemetry.find_devices({each.hardware_id for each in readings})
    return dict(await stores.telemetry.keep(readings, devices=devices, now=now))


async def last_seen(stores: Stores, hardware_id: str = DEVICE) -> str:
    return (await stores.telemetry.find_devices([hardware_id]))[hardware_id].last_seen_at


def times(page: Page[Reading]) -> list[int]:
    return [each.timestamp_ms - NOW_MS for each in page.items]


class TestRegister:
    async def test_says_all_about_a_new_device(self, telemetry_store: TelemetryStore) -> None:
        device = await telemetry_store.register(
            registration(name="greenhouse"), confirmation_id=OTHER_BOOT_ID, now=rfc3339(NOW)
        )
        assert device.hardware_id == DEVICE
        assert device.confirmation_id == OTHER_BOOT_ID
        assert device.capabilities == registration().capabilities
        assert device.first_registered_at == device.last_seen_at == "2027-01-15T08:00:00Z"
        assert (device.last_boot_id, device.firmware_version) == (BOOT_ID, "1.0.16")
        assert device.friendly_name == "greenhouse"
        assert await telemetry_store.find_devices([DEVICE, OTHER_DEVICE]) == {DEVICE: device}

    async def test_a_second_time_changes_what_is_new_and_keeps_the_confirmation(
        self, telemetry_store: TelemetryStore
    ) -> None:
        first = await telemetry_store.register(
            registration(name="greenhouse"), confirmation_id=ids.uuid4(), now=rfc3339(NOW)
        )
        again = replace(
            registration(name="attic"),
            boot_id=OTHER_BOOT_ID,
            firmware_version="2.0",
            capabilities={"sensors": [], "features": {}},
        )
        second = await telemetry_store.register(
            again, confirmation_id=ids.uuid4(), now=rfc3339(NOW + 5)
        )
        assert second == replace(
            first,
            last_boot_id=OTHER_BOOT_ID,
            firmware_version="2.0",
            capabilities={"sensors": [], "features": {}},
            last_seen_at=rfc3339(NOW + 5),
        )
        assert await telemetry_store.find_devices([DEVICE]) == {DEVICE: second}

    async def test_fifty_at_once_get_one_confirmation(
        self, telemetry_store: TelemetryStore
    ) -> None:
        devices = await asyncio.gather(
            *(
                telemetry_store.register(
                    registration(), confirmation_id=ids.uuid4(), now=rfc3339(NOW)
                )
                for _ in range(50)
            )
        )
        [confirmation_id] = {device.confirmation_id for device in devices}
        found = await telemetry_store.find_devices([DEVICE])
        assert found[DEVICE].confirmation_id == confirmation_id

    async def test_a_name_is_taken_only_while_there_is_none(self, stores: Stores) -> None:
        await register(stores)
        names = []
        for name in ("first", "second", None):
            device = await stores.telemetry.register(
                registration(name=name), confirmation_id=ids.uuid4(), now=rfc3339(NOW)
            )
            names.append(device.friendly_name)
        assert names == ["first", "first", "first"]

    async def test_a_clock_that_is_behind_moves_nothing_back(self, stores: Stores) -> None:
        for now, seen in ((NOW, NOW), (NOW - 60, NOW), (NOW + 1, NOW + 1)):
            device = await stores.telemetry.register(
                replace(registration(), firmware_version=f"at {now}"),
                confirmation_id=ids.uuid4(),
                now=rfc3339(now),
            )
            assert device.last_seen_at == rfc3339(seen)
            assert device.first_registered_at == rfc3339(NOW)
            assert device.firmware_version == f"at {now}"
            page = await stores.telemetry.page_of_devices(limit=10, cursor=None)
            assert page.items == [device]


class TestDevices:
    async def test_a_device_gets_and_loses_its_name(self, stores: Stores) -> None:
        [device] = (await register(stores)).values()
        for name in ("greenhouse", "Gewächshaus 🌱", None, None, "again"):
            renamed = await stores.telemetry.rename_device(DEVICE, name)
            assert renamed == replace(device, friendly_name=name)
            assert await stores.telemetry.find_devices([DEVICE]) == {DEVICE: renamed}

    async def test_nobody_is_renamed_who_is_not_there(self, stores: Stores) -> None:
        assert await stores.telemetry.rename_device(DEVICE, "name") is None
        assert await stores.telemetry.find_devices([DEVICE]) == {}

    async def test_a_name_that_was_taken_away_may_come_from_the_device_again(
        self, stores: Stores
    ) -> None:
        await register(stores)
        await stores.telemetry.rename_device(DEVICE, "by hand")
        await stores.telemetry.rename_device(DEVICE, None)
        device = await stores.telemetry.register(
            registration(name="by itself"), confirmation_id=ids.uuid4(), now=rfc3339(NOW)
        )
        assert device.friendly_name == "by itself"

    async def test_the_most_recently_seen_come_first_page_by_page(self, stores: Stores) -> None:
        seen = random.Random(3).sample(range(25), 25)
        for number, at in enumerate(seen):
            # Pairs of devices share their second.
            await stores.telemetry.register(
                registration(hardware(number)),
                confirmation_id=ids.uuid4(),
                now=rfc3339(NOW + at // 2),
            )
        listed: list[Device] = []
        cursor = None
        while True:
            page = await stores.telemetry.page_of_devices(limit=4, cursor=cursor)
            listed += page.items
            if (cursor := page.next_cursor) is None:
                break
            assert len(page.items) == 4
        assert {device.hardware_id for device in listed} == {hardware(n) for n in range(25)}
        assert len(listed) == 25
        assert [each.last_seen_at for each in listed] == sorted(
            (each.last_seen_at for each in listed), reverse=True
        )

    async def test_a_device_that_sends_moves_to_the_front(self, stores: Stores) -> None:
        await register(stores, DEVICE, OTHER_DEVICE)
        await keep(stores, reading(1))
        await keep(stores, reading(1, hardware_id=OTHER_DEVICE), now=NOW + 1)
        await keep(stores, reading(2), now=NOW + 2)
        page = await stores.telemetry.page_of_devices(limit=10, cursor=None)
        assert [each.hardware_id for each in page.items] == [DEVICE, OTHER_DEVICE]

    async def test_a_full_last_page_has_no_next(self, stores: Stores) -> None:
        await register(stores, *(hardware(n) for n in range(4)))
        page = await stores.telemetry.page_of_devices(limit=4, cursor=None)
        assert (len(page.items), page.next_cursor) == (4, None)
        assert await stores.telemetry.page_of_devices(limit=5, cursor=None) == page


class TestKeep:
    async def test_a_new_reading_is_there_as_it_was_sent(self, stores: Stores) -> None:
        await register(stores)
        await stores.telemetry.rename_device(DEVICE, "greenhouse")
        sent = reading(1)
        assert await keep(stores, sent) == {sent.batch_id: Kept(sent.content_hash, is_new=True)}
        [there] = await stored(stores)
        assert there == replace(sent, friendly_name="greenhouse")
        assert there.content_hash == sent.content_hash
        assert await markers(stores) == {sent.batch_id}

    async def test_a_reading_keeps_the_name_that_its_device_had_then(self, stores: Stores) -> None:
        await register(stores)
        for number, name in enumerate(("first", None, "second")):
            await stores.telemetry.rename_device(DEVICE, name)
            await keep(stores, reading(number))
        assert [each.friendly_name for each in await stored(stores)] == ["first", None, "second"]

    async def test_a_second_time_it_is_not_new(self, stores: Stores) -> None:
        await register(stores)
        sent = reading(1)
        await keep(stores, sent)
        again = await keep(stores, sent, now=NOW + 1)
        assert again == {sent.batch_id: Kept(sent.content_hash, is_new=False)}
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
    async def test_what_stands_under_an_id_is_told_and_stays(
        self, stores: Stores, changes: dict[str, object]
    ) -> None:
        await register(stores, DEVICE, OTHER_DEVICE)
        sent = reading(1)
        await keep(stores, sent)
        other = replace(sent, **changes)  # type: ignore[arg-type]
        assert await keep(stores, other) == {sent.batch_id: Kept(sent.content_hash, is_new=False)}
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

    async def test_many_readings_share_a_millisecond(self, stores: Stores) -> None:
        await register(stores)
        together = [reading(n, timestamp_ms=NOW_MS) for n in range(30)]
        await keep(stores, *together)
        assert await stored(stores) == together

    async def test_its_device_was_seen(self, stores: Stores) -> None:
        await register(stores, DEVICE, OTHER_DEVICE, hardware(7))
        await keep(stores, reading(1), reading(2, hardware_id=OTHER_DEVICE))
        assert await last_seen(stores) == rfc3339(NOW)
        assert await last_seen(stores, OTHER_DEVICE) == rfc3339(NOW)
        assert await last_seen(stores, hardware(7)) < rfc3339(NOW)
        await keep(stores, reading(1), now=NOW + 9)
        assert await last_seen(stores) == rfc3339(NOW + 9)

    async def test_last_seen_never_moves_back(self, stores: Stores) -> None:
        devices = await register(stores)
        for number, now in enumerate((NOW, NOW - 3600, NOW + 1, NOW)):
            # Each time with the device as it was found at first, as a slow replica has it.
            await stores.telemetry.keep([reading(number)], devices=devices, now=now)
            assert await last_seen(stores) == rfc3339(NOW + 1 if number > 1 else NOW)

    async def test_a_marker_and_its_reading_are_both_there_or_neither(self, stores: Stores) -> None:
        """Callers go away at any moment of their request."""
        devices = await register(stores)
        everything = [reading(n) for n in range(400)]
        randomness = random.Random(5)

        async def send_and_go(portion: list[Reading], after: float) -> None:
            sending = asyncio.create_task(stores.telemetry.keep(portion, devices=devices, now=NOW))
            await asyncio.wait([sending], timeout=after)
            sending.cancel()
            await asyncio.wait([sending])

        await asyncio.gather(
            *(
                send_and_go(everything[start : start + 20], randomness.uniform(0, 0.08))
                for start in range(0, 400, 20)
            )
        )
        await asyncio.sleep(0.2)
        before = {each.batch_id for each in await stored(stores)}
        assert await markers(stores) == before
        kept = await keep(stores, *everything)
        assert {batch_id for batch_id, each in kept.items() if not each.is_new} == before
        assert await stored(stores) == everything
        assert await markers(stores) == {each.batch_id for each in everything}


class TestRange:
    ENDS: Sequence[tuple[int, int, list[int]]] = (
        (0, 10_000, [2000, 1001, 1000, 999, 0]),
        (1000, 1000, [1000]),
        (999, 1001, [1001, 1000, 999]),
        (1001, 1999, [1001]),
        (1002, 1999, []),
        (2000, 2000, [2000]),
        (2001, 9999, []),
        (-10, 0, [0]),
        (-10, -1, []),
    )

    async def test_both_ends_belong_to_it_to_the_millisecond(self, stores: Stores) -> None:
        await register(stores, DEVICE, OTHER_DEVICE)
        numbers = (0, 999, 1000, 1001, 2000)
        await fill(stores, [reading(n) for n in numbers])
        await fill(stores, [reading(n, hardware_id=OTHER_DEVICE) for n in numbers])
        store = stores.telemetry
        for from_ms, to_ms, expected in self.ENDS:
            within = TimeRange(NOW_MS + from_ms, NOW_MS + to_ms)
            page = await store.page_of_readings(DEVICE, within, limit=10, cursor=None)
            assert times(page) == expected
            assert page.next_cursor is None
            portions = [each async for each in store.readings(DEVICE, within)]
            assert [r.timestamp_ms - NOW_MS for each in portions for r in each] == expected[::-1]
            series = await store.series(DEVICE, "humidity_pct", within, bucket_ms=1)
            assert [each.start_ms - NOW_MS for each in series] == expected[::-1]

    async def test_all_readings_of_the_millisecond_at_an_end_belong_to_it(
        self, stores: Stores
    ) -> None:
        await register(stores)
        # Ids that sort first and last of all that may be sent.
        ends = [
            reading(timestamp_ms=NOW_MS, batch_id=each)
            for each in ("-", "Z" * 256, "z", "~"[:0] + "_")
        ]
        await fill(stores, ends)
        within = TimeRange(NOW_MS, NOW_MS)
        page = await stores.telemetry.page_of_readings(DEVICE, within, limit=10, cursor=None)
        assert [each.batch_id for each in page.items] == ["z", "_", "Z" * 256, "-"]

    async def test_ids_are_in_the_order_of_their_bytes(self, stores: Stores) -> None:
        await register(stores)
        names = ["a", "B", "A", "b", "_", "-", ".", ":", "0", "aa", "a-", "a_", "a.b"]
        await fill(stores, [reading(timestamp_ms=NOW_MS, batch_id=each) for each in names])
        listed: list[str] = []
        cursor = None
        for _ in names:
            page = await stores.telemetry.page_of_readings(DEVICE, EVER, limit=1, cursor=cursor)
            listed += [each.batch_id for each in page.items]
            cursor = page.next_cursor
        assert cursor is None
        assert listed == sorted(names, reverse=True)


class TestPaging:
    async def test_ten_thousand_are_listed_once_each_while_others_arrive(
        self, stores: Stores
    ) -> None:
        await register(stores)
        there = [reading(n * 10) for n in range(10_000)]
        await fill(stores, there)
        listed: list[Reading] = []
        passed: list[Reading] = []
        ahead: list[Reading] = []
        cursor = None
        while True:
            page = await stores.telemetry.page_of_readings(DEVICE, EVER, limit=1000, cursor=cursor)
            listed += page.items
            if (cursor := page.next_cursor) is None:
                break
            assert len(page.items) == 1000
            here = page.items[-1].timestamp_ms
            # Newer than all, just passed, and before the last one in its own millisecond.
            places = (NOW_MS + 10**6, here + 5, here)
            passed += [reading(batch_id=f"z{here}-{at}", timestamp_ms=at) for at in places]
            # Older than all, just to come, and after the last one in its own millisecond.
            places = (NOW_MS - 1, here - 5, here)
            ahead += [reading(batch_id=f"-{here}-{at}", timestamp_ms=at) for at in places]
            await keep(stores, *passed[-3:], *ahead[-3:])
        assert listed == sorted(
            there + ahead, key=lambda each: (each.timestamp_ms, each.batch_id), reverse=True
        )
        assert len(await stored(stores)) == len(there) + len(ahead) + len(passed)

    async def test_the_last_page_has_no_next(self, stores: Stores) -> None:
        await register(stores)
        await fill(stores, [reading(n) for n in range(10)])
        page = await stores.telemetry.page_of_readings(DEVICE, EVER, limit=10, cursor=None)
        assert (len(page.items), page.next_cursor) == (10, None)
        first = await stores.telemetry.page_of_readings(DEVICE, EVER, limit=5, cursor=None)
        second = await stores.telemetry.page_of_readings(
            DEVICE, EVER, limit=5, cursor=first.next_cursor
        )
        assert times(first) + times(second) == [*range(9, -1, -1)]
        assert second.next_cursor is None

    async def test_a_cursor_stays_within_the_range(self, stores: Stores) -> None:
        await register(stores)
        await fill(stores, [reading(n) for n in range(30)])
        within = TimeRange(NOW_MS + 10, NOW_MS + 19)
        first = await stores.telemetry.page_of_readings(DEVICE, within, limit=6, cursor=None)
        second = await stores.telemetry.page_of_readings(
            DEVICE, within, limit=6, cursor=first.next_cursor
        )
        assert times(first) + times(second) == [*range(19, 9, -1)]
        assert second.next_cursor is None

    async def test_a_portion_ends_and_the_next_goes_on(self, stores: Stores) -> None:
        await register(stores)
        sensors = {f"sensor_{n}_with_a_long_name": n + 0.5 for n in range(20)}
        there = [reading(n // 3, batch_id=f"b{n:05}", sensors=sensors) for n in range(2600)]
        await fill(stores, there)
        portions = [each async for each in stores.telemetry.readings(DEVICE, EVER)]
        assert [each for portion in portions for each in portion] == there
        assert len(portions) > 1
        assert [] not in portions

    async def test_a_foreign_or_tampered_cursor_is_refused(self, stores: Stores) -> None:
        await register(stores, DEVICE, OTHER_DEVICE)
        store = stores.telemetry
        await fill(stores, [reading(n) for n in range(4)])
        of_readings = (await store.page_of_readings(DEVICE, EVER, limit=2, cursor=None)).next_cursor
        of_devices = (await store.page_of_devices(limit=1, cursor=None)).next_cursor
        assert of_readings is not None
        assert of_devices is not None
        tampered = of_readings[:-1] + ("A" if of_readings[-1] != "A" else "B")
        for cursor in (of_devices, tampered, of_readings[1:], "", "x", "%%%", "ü", "AAAA" * 50):
            with pytest.raises(InvalidCursorError):
                await store.page_of_readings(DEVICE, EVER, limit=2, cursor=cursor)
        with pytest.raises(InvalidCursorError):
            await store.page_of_readings(OTHER_DEVICE, EVER, limit=2, cursor=of_readings)
        for cursor in (of_readings, of_devices[1:], "", "x"):
            with pytest.raises(InvalidCursorError):
                await store.page_of_devices(limit=2, cursor=cursor)
            with pytest.raises(InvalidCursorError):
                await stores.keys.page_of_keys(limit=2, cursor=cursor)


class TestLatest:
    async def test_is_the_greatest_time_and_not_the_last_written(
        self, stores: Stores, telemetry: Telemetry
    ) -> None:
        await register(stores)
        numbers = [5, 3, 9, 1, 8, 2]
        greatest = 0
        for number in numbers:
            await telemetry.ingest([raw_reading(number)])
            greatest = max(greatest, number)
            assert (await telemetry.latest(DEVICE)) == reading(greatest)

    async def test_days_of_buffered_readings_in_any_order(
        self, stores: Stores, telemetry: Telemetry, clock: ManualClock
    ) -> None:
        await register(stores)
        await telemetry.ingest([raw_reading(0)])
        clock.advance(3 * DAY)
        late = [raw_reading(n, timestamp_ms=NOW_MS + n * 600_000) for n in range(-400, 400)]
        late.remove(raw_reading(0))
        random.Random(2).shuffle(late)
        for start in range(0, len(late), 100):
            report = await telemetry.ingest(late[start : start + 100])
            assert len(report.acknowledged) == len(late[start : start + 100])
        assert (await telemetry.latest(DEVICE)).timestamp_ms == NOW_MS + 399 * 600_000
        assert await last_seen(stores) == rfc3339(NOW + 3 * DAY)
        in_order = [each.timestamp_ms for each in await stored(stores)]
        assert in_order == [NOW_MS + n * 600_000 for n in range(-400, 400)]

    async def test_a_device_without_any_has_none(
        self, stores: Stores, telemetry: Telemetry
    ) -> None:
        await register(stores)
        with pytest.raises(NoReadingsError):
            await telemetry.latest(DEVICE)


class TestSeries:
    async def test_gathers_least_mean_greatest_and_number(self, stores: Stores) -> None:
        await register(stores)
        values = {0: 4, 999: -2.5, 1000: 7, 3500: 1.5, 3501: 2.5, 3502: 0.5}
        readings = [reading(n, sensors={"t": value}) for n, value in values.items()]
        without = [reading(n, sensors={"other": 99}) for n in (500, 1500, 2500)]
        await fill(stores, [*readings, *without, reading(600, sensors={})])
        buckets = await stores.telemetry.series(DEVICE, "t", EVER, bucket_ms=1000)
        assert list(buckets) == [
            Bucket(NOW_MS, -2.5, 0.75, 4, 2),
            Bucket(NOW_MS + 1000, 7, 7, 7, 1),
            Bucket(NOW_MS + 3000, 0.5, 1.5, 2.5, 3),
        ]
        assert all(isinstance(each.start_ms, int) for each in buckets)

    async def test_buckets_begin_at_multiples_of_their_length(self, stores: Stores) -> None:
        await register(stores)
        await fill(stores, [reading(n, sensors={"t": n}) for n in (0, 5000, 12_000)])
        length = 7000
        within = TimeRange(NOW_MS + 1, NOW_MS + 12_000)
        buckets = await stores.telemetry.series(DEVICE, "t", within, bucket_ms=length)
        starts = [(NOW_MS + n) // length * length for n in (5000, 12_000)]
        assert [each.start_ms for each in buckets] == starts
        assert [each.count for each in buckets] == [1, 1]

    async def test_what_was_not_measured_has_no_bucket(self, stores: Stores) -> None:
        await register(stores, DEVICE, OTHER_DEVICE)
        await fill(stores, [reading(1)])
        for device, metric in ((DEVICE, "nothing"), (OTHER_DEVICE, "humidity_pct")):
            assert list(await stores.telemetry.series(device, metric, EVER, bucket_ms=60)) == []
        empty = TimeRange(NOW_MS + 2, NOW_MS + 1)
        assert list(await stores.telemetry.series(DEVICE, "humidity_pct", empty, bucket_ms=1)) == []

    async def test_any_name_of_a_sensor_will_do(self, stores: Stores) -> None:
        await register(stores)
        names = ["0", "1a", "_", "a" * 63, "a" * 64, "select", "null"]
        await fill(stores, [reading(1, sensors={name: n for n, name in enumerate(names)})])
        for number, name in enumerate(names):
            buckets = await stores.telemetry.series(DEVICE, name, EVER, bucket_ms=NOW_MS)
            assert list(buckets) == [Bucket(NOW_MS, number, number, number, 1)]

    async def test_numbers_of_any_size(self, stores: Stores) -> None:
        await register(stores)
        values = [1e125, -1e125, 1e-130, 2**60, 0]
        await fill(stores, [reading(n, sensors={"t": value}) for n, value in enumerate(values)])
        buckets = await stores.telemetry.series(DEVICE, "t", EVER, bucket_ms=1)
        assert [each.min for each in buckets] == [float(value) for value in values]
        [whole] = await stores.telemetry.series(DEVICE, "t", EVER, bucket_ms=NOW_MS)
        assert (whole.min, whole.max, whole.count) == (-1e125, 1e125, 5)


class TestExpiry:
    AT_MS = NOW_MS + 500
    END = NOW + 0.5 + RETENTION.seconds

    async def _shown(self, telemetry: Telemetry) -> list[int]:
        """How many each way of asking shows."""
        page = await telemetry.list_readings(DEVICE, limit=10)
        export = await telemetry.export(DEVICE, from_ms=None, to_ms=None)
        series = await telemetry.series(
            DEVICE, "humidity_pct", from_ms=NOW_MS, to_ms=NOW_MS + 999, bucket_ms=1000
        )
        try:
            await telemetry.latest(DEVICE)
        except NoReadingsError:
            latest = 0
        else:
            latest = 1
        exported = sum([len(portion) async for portion in export])
        return [len(page.items), exported, sum(each.count for each in series), latest]

    async def test_a_reading_is_shown_until_the_exact_instant(self, stores: Stores) -> None:
        await register(stores)
        await keep(stores, reading(1, timestamp_ms=self.AT_MS))
        before = service_on(stores, ManualClock(self.END - 0.001))
        assert await self._shown(before) == [1, 1, 1, 1]
        at = service_on(stores, ManualClock(self.END))
        assert await self._shown(at) == [0, 0, 0, 0]
        assert len(await stored(stores)) == 1, "nothing has collected it yet"

    async def test_a_reading_is_taken_until_the_exact_instant(self, stores: Stores) -> None:
        await register(stores)
        before = service_on(stores, ManualClock(self.END - 0.001))
        report = await before.ingest([raw_reading(1, timestamp_ms=self.AT_MS)])
        assert len(report.acknowledged) == 1
        at = service_on(stores, ManualClock(self.END))
        for number in (1, 2):
            report = await at.ingest([raw_reading(number, timestamp_ms=self.AT_MS)])
            assert [each.code for each in report.rejected] == ["TOO_OLD"]
        younger = await at.ingest([raw_reading(2, timestamp_ms=self.AT_MS + 1)])
        assert len(younger.acknowledged) == 1

    async def test_a_page_that_was_begun_ends_where_expiry_has_come_to(
        self, stores: Stores
    ) -> None:
        await register(stores)
        await fill(stores, [reading(n, timestamp_ms=NOW_MS + n * 1000) for n in range(10)])
        clock = ManualClock(NOW + RETENTION.seconds - 1)
        telemetry = service_on(stores, clock)
        first = await telemetry.list_readings(DEVICE, limit=4)
        clock.advance(4)
        second = await telemetry.list_readings(DEVICE, limit=9, cursor=first.next_cursor)
        assert [each.timestamp_ms for each in second.items] == [NOW_MS + 5000, NOW_MS + 4000]
        assert second.next_cursor is None


class TestRetentionJob:
    async def test_removes_just_what_has_expired(self, sql_stores: Stores) -> None:
        await register(sql_stores, DEVICE, OTHER_DEVICE, hardware(9))
        end = NOW + RETENTION.seconds
        for device, count in ((DEVICE, 2500), (OTHER_DEVICE, 1100)):
            old = [reading(n, hardware_id=device, timestamp_ms=NOW_MS - n) for n in range(count)]
            young = [reading(n, hardware_id=device) for n in range(5001, 5011)]
            await fill(sql_stores, [*old, *young], now=NOW - 40 * DAY)
        report = await retention_job(sql_stores, ManualClock(end)).run()
        assert report.readings_removed == 3600
        for device in (DEVICE, OTHER_DEVICE):
            young = [reading(n, hardware_id=device) for n in range(5001, 5011)]
            assert await stored(sql_stores, device) == young
        # Markers may stay a moment longer than their readings, and no longer than that.
        again = await retention_job(sql_stores, ManualClock(end + 2)).run()
        assert again.readings_removed == 0
        assert report.markers_removed + again.markers_removed == 3600
        assert len(await markers(sql_stores)) == 20
        last = await retention_job(sql_stores, ManualClock(end + 2)).run()
        assert (last.readings_removed, last.markers_removed) == (0, 0)

    async def test_removes_in_portions_the_oldest_first(self, sql_stores: Stores) -> None:
        await register(sql_stores, DEVICE, OTHER_DEVICE)
        for device in (DEVICE, OTHER_DEVICE):
            await fill(sql_stores, [reading(n, hardware_id=device) for n in range(50)])
        expired = sql_stores.expired
        oldest_ms = NOW_MS + 30
        removed = [
            await expired.remove_expired(DEVICE, oldest_ms=oldest_ms, limit=20) for _ in range(3)
        ]
        assert removed == [20, 10, 0]
        assert await stored(sql_stores) == [reading(n) for n in range(30, 50)]
        assert len(await stored(sql_stores, OTHER_DEVICE)) == 50

    async def test_a_millisecond_with_many_readings_is_removed_too(
        self, sql_stores: Stores
    ) -> None:
        await register(sql_stores)
        await fill(sql_stores, [reading(n, timestamp_ms=NOW_MS) for n in range(50)])
        expired = sql_stores.expired
        assert await expired.remove_expired(DEVICE, oldest_ms=NOW_MS, limit=20) == 0
        while await expired.remove_expired(DEVICE, oldest_ms=NOW_MS + 1, limit=20):
            pass
        assert await stored(sql_stores) == []

    async def test_names_the_devices_in_order(self, sql_stores: Stores) -> None:
        devices = [hardware(n) for n in range(7)]
        await register(sql_stores, *devices)
        for device in devices[1:]:
            await fill(sql_stores, [reading(1, hardware_id=device)])
        expired = sql_stores.expired
        names = await expired.devices_with_expired(oldest_ms=NOW_MS + 2, after="", limit=4)
        assert list(names) == devices[1:5]
        names = await expired.devices_with_expired(oldest_ms=NOW_MS + 2, after=devices[4], limit=4)
        assert list(names) == devices[5:]
        assert not await expired.devices_with_expired(oldest_ms=NOW_MS + 1, after="", limit=4)

    async def test_markers_go_at_their_exact_second_in_portions(self, sql_stores: Stores) -> None:
        await register(sql_stores)
        old = [reading(n, timestamp_ms=NOW_MS - 80 * DAY * 1000) for n in range(30)]
        await fill(sql_stores, old)
        expired = sql_stores.expired
        end = NOW + 30 * DAY
        assert await expired.remove_markers(now=end - 1, limit=20) == 0
        removed = [await expired.remove_markers(now=end, limit=20) for _ in range(3)]
        assert removed == [20, 10, 0]

    @pytest.mark.parametrize("fraction", [0, 0.875])
    async def test_a_marker_never_goes_before_its_reading(
        self, sql_stores: Stores, fraction: float
    ) -> None:
        """The job may run in the very second in which the reading expires."""
        await register(sql_stores)
        clock = ManualClock(NOW + 1)
        telemetry = service_on(sql_stores, clock)
        sent = raw_reading(1, timestamp_ms=NOW_MS + 900)
        await telemetry.ingest([sent])
        clock.advance(RETENTION.seconds - 1 + fraction)
        await retention_job(sql_stores, clock).run()
        report = await telemetry.ingest([sent])
        assert report.duplicates == [sent["batch_id"]]
        assert await stored(sql_stores) == [reading(1, timestamp_ms=NOW_MS + 900)]

    async def test_a_longer_retention_than_before_keeps_readings_once_too(
        self, sql_stores: Stores
    ) -> None:
        """An operator who sets more days has readings whose markers were to go earlier."""
        await register(sql_stores)
        clock = ManualClock(NOW)
        sent = raw_reading(1)
        await service_on(sql_stores, clock).ingest([sent])
        longer = Retention(365 * DAY)
        clock.advance(RETENTION.seconds + 1)
        await retention_job(sql_stores, clock, retention=longer).run()
        telemetry = service_on(sql_stores, clock, retention=longer)
        report = await telemetry.ingest([sent])
        assert report.duplicates == [sent["batch_id"]]
        report = await telemetry.ingest([raw_reading(1, sensors={}), raw_reading(2)])
        assert [each.code for each in report.rejected] == ["BATCH_ID_CONFLICT"]
        assert report.acknowledged == [raw_reading(2)["batch_id"]]
        assert await stored(sql_stores) == [reading(1), reading(2)]


async def test_the_schema_is_the_one_that_the_code_needs(telemetry_store: TelemetryStore) -> None:
    await telemetry_store.check()
