"""What expires and what the retention job removes, on every engine."""

import pytest

from sandyard.telemetry.errors import NoReadingsError
from sandyard.telemetry.model import Retention
from sandyard.telemetry.service import Telemetry
from tests.contract.telemetry.readings import keep
from tests.support.clocks import ManualClock
from tests.support.telemetry.engines import (
    DAY,
    DEVICE,
    NOW,
    NOW_MS,
    OTHER_DEVICE,
    RETENTION_SEC,
    Stores,
    fill,
    hardware,
    markers,
    raw_reading,
    reading,
    register,
    retention_job,
    service_on,
    stored,
)


class TestExpiry:
    AT_MS = NOW_MS + 500
    END = NOW + 0.5 + RETENTION_SEC

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
        clock = ManualClock(NOW + RETENTION_SEC - 1)
        telemetry = service_on(stores, clock)
        first = await telemetry.list_readings(DEVICE, limit=4)
        clock.advance(4)
        second = await telemetry.list_readings(DEVICE, limit=9, cursor=first.next_cursor)
        assert [each.timestamp_ms for each in second.items] == [NOW_MS + 5000, NOW_MS + 4000]
        assert second.next_cursor is None


class TestRetentionJob:
    async def test_removes_just_what_has_expired(self, sql_stores: Stores) -> None:
        await register(sql_stores, DEVICE, OTHER_DEVICE, hardware(9))
        end = NOW + RETENTION_SEC
        for device, count in ((DEVICE, 2500), (OTHER_DEVICE, 1100)):
            old = [reading(n, hardware_id=device, timestamp_ms=NOW_MS - n) for n in range(count)]
            young = [reading(n, hardware_id=device) for n in range(5001, 5011)]
            await fill(sql_stores, [*old, *young], now_ms=NOW_MS - 40 * DAY * 1000)
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
        end_ms = NOW_MS + 30 * DAY * 1000
        assert await expired.remove_markers(now_ms=end_ms - 1, limit=20) == 0
        removed = [await expired.remove_markers(now_ms=end_ms, limit=20) for _ in range(3)]
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
        clock.advance(RETENTION_SEC - 1 + fraction)
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
        longer = Retention(365 * DAY * 1000)
        clock.advance(RETENTION_SEC + 1)
        await retention_job(sql_stores, clock, retention=longer).run()
        telemetry = service_on(sql_stores, clock, retention=longer)
        report = await telemetry.ingest([sent])
        assert report.duplicates == [sent["batch_id"]]
        report = await telemetry.ingest([raw_reading(1, sensors={}), raw_reading(2)])
        assert [each.code for each in report.rejected] == ["BATCH_ID_CONFLICT"]
        assert report.acknowledged == [raw_reading(2)["batch_id"]]
        assert await stored(sql_stores) == [reading(1), reading(2)]
