"""What every TelemetryStore promises of ranges, pages, the latest and series."""

import random
from collections.abc import Sequence

import pytest

from sandyard.kit.paging import InvalidCursorError
from sandyard.telemetry.errors import NoReadingsError
from sandyard.telemetry.model import Bucket, Gaps, Reading, SensorValue, TimeRange
from sandyard.telemetry.service import Telemetry
from tests.contract.telemetry.readings import keep, last_seen, times
from tests.support.clocks import ManualClock
from tests.support.telemetry.engines import (
    DAY,
    DEVICE,
    EVER,
    NOW_MS,
    OTHER_DEVICE,
    Stores,
    fill,
    raw_reading,
    reading,
    register,
    registration,
    stored,
)


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
    async def test_latest_is_the_greatest_timestamp_not_the_last_written(
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
        assert await last_seen(stores) == NOW_MS + 3 * DAY * 1000
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

    async def test_readings_without_the_metric_have_no_bucket(self, stores: Stores) -> None:
        await register(stores, DEVICE, OTHER_DEVICE)
        await fill(stores, [reading(1)])
        for device, metric in ((DEVICE, "nothing"), (OTHER_DEVICE, "humidity_pct")):
            assert list(await stores.telemetry.series(device, metric, EVER, bucket_ms=60)) == []
        empty = TimeRange(NOW_MS + 2, NOW_MS + 1)
        assert list(await stores.telemetry.series(DEVICE, "humidity_pct", empty, bucket_ms=1)) == []

    async def test_a_series_of_any_valid_sensor_name(self, stores: Stores) -> None:
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


class TestSensors:
    async def test_every_sensor_of_the_range_is_listed_with_its_latest_value(
        self, stores: Stores
    ) -> None:
        await register(stores, DEVICE, OTHER_DEVICE)
        await fill(
            stores,
            [
                reading(1, sensors={"old": 1, "both": 2.5}),
                reading(3, sensors={"both": 4, "_1": -0.5}),
                reading(2, sensors={"both": 3}),
                reading(9, sensors={"later": 9}),
                reading(4, sensors={"other": 5}, hardware_id=OTHER_DEVICE),
            ],
        )
        within = TimeRange(NOW_MS, NOW_MS + 8)
        assert list(await stores.telemetry.sensors(DEVICE, within)) == [
            SensorValue("_1", -0.5, NOW_MS + 3),
            SensorValue("both", 4, NOW_MS + 3),
            SensorValue("old", 1, NOW_MS + 1),
        ]

    async def test_a_range_without_readings_has_no_sensor(self, stores: Stores) -> None:
        await register(stores)
        await fill(stores, [reading(1), reading(5, sensors={})])
        within = TimeRange(NOW_MS + 2, NOW_MS + 8)
        assert list(await stores.telemetry.sensors(DEVICE, within)) == []


MINUTE = 60_000


class TestGaps:
    async def test_a_hole_of_33_minutes_is_a_gap_of_33_minutes(
        self, stores: Stores, telemetry: Telemetry
    ) -> None:
        await register(stores)
        sent = [*range(-120, -63), *range(-31, 1)]
        await fill(stores, [reading(minute * MINUTE) for minute in sent])
        hole = TimeRange(NOW_MS - 64 * MINUTE, NOW_MS - 31 * MINUTE)
        for hours in (2, 24, 24 * 7):
            begin = NOW_MS - hours * 60 * MINUTE
            found = await telemetry.gaps(DEVICE, None, from_ms=begin, to_ms=NOW_MS)
            assert found.usual_interval_ms == MINUTE
            assert hole in found.gaps

    async def test_a_sensor_that_failed_has_gaps_of_its_own(
        self, stores: Stores, telemetry: Telemetry
    ) -> None:
        await register(stores)
        failed = range(-40, -10)
        await fill(
            stores,
            [
                reading(n * MINUTE, sensors={"t": n} if n in failed else {"t": n, "h": n})
                for n in range(-60, 1)
            ],
        )
        within = {"from_ms": NOW_MS - 60 * MINUTE, "to_ms": NOW_MS}
        whole = TimeRange(*within.values())
        assert await telemetry.gaps(DEVICE, "t", **within) == Gaps(whole, MINUTE, [])
        assert (await telemetry.gaps(DEVICE, "h", **within)).gaps == [
            TimeRange(NOW_MS - 41 * MINUTE, NOW_MS - 10 * MINUTE)
        ]
        assert (await telemetry.gaps(DEVICE, "none", **within)).gaps == [whole]

    async def test_a_sensor_is_missed_since_the_first_reading_of_its_device(
        self, stores: Stores, telemetry: Telemetry
    ) -> None:
        await telemetry.register(registration(), key_id="k")
        await fill(
            stores,
            [
                reading(n * MINUTE, sensors={"t": n} if n < -10 else {"t": n, "h": n})
                for n in range(-30, 1)
            ],
        )
        within = {"from_ms": NOW_MS - 60 * MINUTE, "to_ms": NOW_MS}
        assert (await telemetry.gaps(DEVICE, "h", **within)).gaps == [
            TimeRange(NOW_MS - 30 * MINUTE, NOW_MS - 10 * MINUTE)
        ]

    async def test_nothing_is_missing_before_a_device_is_registered(
        self, stores: Stores, telemetry: Telemetry, clock: ManualClock
    ) -> None:
        await telemetry.register(registration(), key_id="k")
        registered_at = NOW_MS
        clock.advance(600)
        begin = NOW_MS - DAY * 1000
        found = await telemetry.gaps(DEVICE, None, from_ms=begin, to_ms=NOW_MS + 600_000)
        assert found == Gaps(TimeRange(registered_at, NOW_MS + 600_000), None, [])
        await fill(stores, [reading(n * MINUTE) for n in (-5, -4, -3)])
        found = await telemetry.gaps(DEVICE, None, from_ms=begin, to_ms=NOW_MS + 600_000)
        assert found.within.from_ms == NOW_MS - 5 * MINUTE
        assert found.gaps == [TimeRange(NOW_MS - 3 * MINUTE, NOW_MS + 600_000)]

    async def test_readings_of_one_millisecond_are_one_time(
        self, stores: Stores, telemetry: Telemetry
    ) -> None:
        await register(stores)
        pairs = [reading(n * MINUTE, batch_id=f"{n}-{twin}") for n in range(5) for twin in "ab"]
        await fill(stores, pairs)
        found = await telemetry.gaps(DEVICE, None, from_ms=NOW_MS, to_ms=NOW_MS + 4 * MINUTE)
        assert (found.usual_interval_ms, found.gaps) == (MINUTE, [])

    async def test_times_come_in_portions(self, stores: Stores) -> None:
        await register(stores)
        await fill(stores, [reading(n) for n in range(2500)])
        portions = [each async for each in stores.telemetry.reading_times(DEVICE, None, EVER)]
        assert [at for each in portions for at in each] == [NOW_MS + n for n in range(2500)]
