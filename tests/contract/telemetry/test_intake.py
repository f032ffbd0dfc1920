"""Readings sent in any way a board may send them: each is kept once, each is answered for."""

import random
from typing import Any

import pytest

from sandyard.telemetry.errors import BatchSizeExceededError, EmptyBatchError
from sandyard.telemetry.model import IntakeReport, Rejection, RejectionCode
from sandyard.telemetry.service import Telemetry
from tests.support.clocks import ManualClock
from tests.support.telemetry.engines import (
    DAY,
    DEVICE,
    NOW,
    NOW_MS,
    OTHER_DEVICE,
    RETENTION,
    Stores,
    check_accounted,
    hardware,
    markers,
    raw_reading,
    reading,
    register,
    retention_job,
    stored,
)

CONFLICT = RejectionCode.BATCH_ID_CONFLICT
UNREGISTERED = RejectionCode.DEVICE_NOT_REGISTERED


def names(raw: list[dict[str, Any]]) -> list[str]:
    return [each["batch_id"] for each in raw]


def conflict(index: int, raw: dict[str, Any]) -> Rejection:
    return Rejection(index, raw["batch_id"], CONFLICT)


@pytest.fixture(autouse=True)
async def devices(stores: Stores) -> None:
    await register(stores, DEVICE, OTHER_DEVICE)


class TestOneRequest:
    async def test_all_new_all_acknowledged(self, stores: Stores, telemetry: Telemetry) -> None:
        raw = [raw_reading(n) for n in range(100)]
        assert await telemetry.ingest(raw) == IntakeReport(acknowledged=names(raw))
        assert await stored(stores) == [reading(n) for n in range(100)]

    async def test_sent_again_all_are_duplicates(
        self, stores: Stores, telemetry: Telemetry
    ) -> None:
        raw = [raw_reading(n) for n in range(20)]
        await telemetry.ingest(raw)
        again = [dict(reversed(each.items())) for each in reversed(raw)]
        assert await telemetry.ingest(again) == IntakeReport(duplicates=names(again))
        assert len(await stored(stores)) == 20

    async def test_fields_that_nobody_knows_change_nothing(
        self, stores: Stores, telemetry: Telemetry
    ) -> None:
        await telemetry.ingest([raw_reading(1, rssi=-70)])
        report = await telemetry.ingest([raw_reading(1, rssi=-71, friendly_name="x")])
        assert len(report.duplicates) == 1
        assert await stored(stores) == [reading(1)]

    async def test_a_new_name_of_the_device_does_not_make_another_reading(
        self, stores: Stores, telemetry: Telemetry
    ) -> None:
        await telemetry.ingest([raw_reading(1)])
        await telemetry.rename_device(DEVICE, "new name")
        report = await telemetry.ingest([raw_reading(1)])
        assert len(report.duplicates) == 1
        assert await stored(stores) == [reading(1)]

    async def test_other_content_is_refused_and_the_stored_stays(
        self, stores: Stores, telemetry: Telemetry
    ) -> None:
        await telemetry.ingest([raw_reading(1)])
        others = [
            raw_reading(1, sensors={"bme280_temp_c": 22.5}),
            raw_reading(1, timestamp_ms=NOW_MS + 2),
            raw_reading(1, firmware_version="1.0.17"),
            raw_reading(1, hardware_id=OTHER_DEVICE, batch_id=raw_reading(1)["batch_id"]),
        ]
        report = await telemetry.ingest(others)
        assert report == IntakeReport(rejected=[conflict(n, others[n]) for n in range(4)])
        assert await stored(stores) == [reading(1)]
        assert await stored(stores, OTHER_DEVICE) == []

    async def test_the_same_twice_is_one_and_a_duplicate(
        self, stores: Stores, telemetry: Telemetry
    ) -> None:
        raw = [raw_reading(1), raw_reading(2), raw_reading(1), raw_reading(1)]
        report = await telemetry.ingest(raw)
        assert sorted(report.acknowledged) == names(raw)[:2]
        assert report.duplicates == names(raw)[:1] * 2
        check_accounted(raw, report)
        assert await stored(stores) == [reading(1), reading(2)]

    async def test_of_two_contents_under_one_id_the_first_is_kept(
        self, stores: Stores, telemetry: Telemetry
    ) -> None:
        raw = [raw_reading(1), raw_reading(1, sensors={}), raw_reading(1)]
        report = await telemetry.ingest(raw)
        assert report == IntakeReport(
            acknowledged=names(raw)[:1], duplicates=names(raw)[:1], rejected=[conflict(1, raw[1])]
        )
        assert await stored(stores) == [reading(1)]

    async def test_of_two_contents_the_one_that_is_stored_already_is_the_duplicate(
        self, stores: Stores, telemetry: Telemetry
    ) -> None:
        await telemetry.ingest([raw_reading(1)])
        raw = [raw_reading(1, sensors={}), raw_reading(1)]
        report = await telemetry.ingest(raw)
        assert report == IntakeReport(duplicates=names(raw)[:1], rejected=[conflict(0, raw[0])])
        assert await stored(stores) == [reading(1)]

    @pytest.mark.parametrize(
        ("bad", "code"),
        [
            ({"sensors": {"t": "warm"}}, RejectionCode.INVALID_SENSORS),
            ({"hardware_id": hardware(99)}, UNREGISTERED),
            ({"timestamp_ms": NOW_MS - 91 * DAY * 1000}, RejectionCode.TOO_OLD),
        ],
    )
    async def test_a_bad_first_one_does_not_take_the_id(
        self, stores: Stores, telemetry: Telemetry, bad: dict[str, Any], code: RejectionCode
    ) -> None:
        raw = [raw_reading(1) | bad, raw_reading(1)]
        report = await telemetry.ingest(raw)
        assert report == IntakeReport(
            acknowledged=names(raw)[1:], rejected=[Rejection(0, raw[0]["batch_id"], code)]
        )
        assert await stored(stores) == [reading(1)]

    async def test_one_malformed_does_not_block_ninety_nine(
        self, stores: Stores, telemetry: Telemetry
    ) -> None:
        raw: list[Any] = [raw_reading(n) for n in range(100)]
        raw[42] = ["not", "a", "reading"]
        report = await telemetry.ingest(raw)
        assert report.rejected == [Rejection(42, None, RejectionCode.INVALID_READING)]
        assert sorted(report.acknowledged) == names(raw[:42] + raw[43:])
        assert len(await stored(stores)) == 99

    async def test_all_kinds_in_one_request(self, stores: Stores, telemetry: Telemetry) -> None:
        await telemetry.ingest([raw_reading(1), raw_reading(2)])
        raw = [
            raw_reading(5, hardware_id=hardware(99)),
            raw_reading(1),
            raw_reading(2, sensors={}),
            raw_reading(3),
            raw_reading(4, boot_id="no"),
            raw_reading(3),
            raw_reading(6, timestamp_ms=NOW_MS - RETENTION.duration_ms),
            raw_reading(7, hardware_id=OTHER_DEVICE),
        ]
        report = await telemetry.ingest(raw)
        assert [(each.index, each.code) for each in report.rejected] == [
            (0, UNREGISTERED),
            (2, CONFLICT),
            (4, RejectionCode.INVALID_BOOT_ID),
            (6, RejectionCode.TOO_OLD),
        ]
        assert report.acknowledged == [raw[3]["batch_id"], raw[7]["batch_id"]]
        assert report.duplicates == [raw[1]["batch_id"], raw[5]["batch_id"]]
        check_accounted(raw, report)
        assert await stored(stores) == [reading(n) for n in (1, 2, 3)]
        assert await stored(stores, OTHER_DEVICE) == [reading(7, hardware_id=OTHER_DEVICE)]

    async def test_a_hundred_devices_in_one_request(
        self, stores: Stores, telemetry: Telemetry
    ) -> None:
        ours = [hardware(n) for n in range(0, 100, 2)]
        await register(stores, *ours)
        raw = [raw_reading(1, hardware_id=hardware(n)) for n in range(100)]
        report = await telemetry.ingest(raw)
        assert [each.index for each in report.rejected] == list(range(1, 100, 2))
        assert {each.code for each in report.rejected} == {UNREGISTERED}
        for device in ours:
            assert len(await stored(stores, device)) == 1
            assert (await telemetry.get_device(device)).last_seen_at == NOW_MS

    async def test_a_device_that_registers_later_may_send_the_same_again(
        self, stores: Stores, telemetry: Telemetry
    ) -> None:
        raw = [raw_reading(1, hardware_id=hardware(5))]
        assert (await telemetry.ingest(raw)).rejected[0].code == UNREGISTERED
        assert await markers(stores) == set()
        await register(stores, hardware(5))
        assert (await telemetry.ingest(raw)).acknowledged == names(raw)

    async def test_a_rejected_reading_stores_nothing(
        self, stores: Stores, telemetry: Telemetry
    ) -> None:
        seen = (await telemetry.get_device(DEVICE)).last_seen_at
        await telemetry.ingest([raw_reading(1, sensors=None), raw_reading(2, timestamp_ms=1)])
        assert await markers(stores) == set()
        assert await stored(stores) == []
        assert (await telemetry.get_device(DEVICE)).last_seen_at == seen

    async def test_a_hundred_and_one_are_too_many(
        self, stores: Stores, telemetry: Telemetry
    ) -> None:
        with pytest.raises(BatchSizeExceededError):
            await telemetry.ingest([raw_reading(n) for n in range(101)])
        assert await stored(stores) == []

    async def test_none_is_too_few(self, telemetry: Telemetry) -> None:
        with pytest.raises(EmptyBatchError):
            await telemetry.ingest([])

    async def test_the_longest_id_and_the_most_sensors(
        self, stores: Stores, telemetry: Telemetry
    ) -> None:
        sensors = {f"{n:064}": n / 7 for n in range(100)}
        status = dict.fromkeys(sensors, "ok")
        raw = raw_reading(1, batch_id="x" * 256, sensors=sensors, sensor_status=status)
        assert (await telemetry.ingest([raw])).acknowledged == ["x" * 256]
        assert (await telemetry.ingest([raw])).duplicates == ["x" * 256]
        [there] = await stored(stores)
        assert (there.sensors, there.sensor_status) == (sensors, status)


class TestLater:
    async def test_after_thirty_one_days_it_is_a_duplicate_still(
        self, stores: Stores, telemetry: Telemetry, clock: ManualClock
    ) -> None:
        """The marker is gone on DynamoDB by then; the reading itself is guard enough."""
        raw = raw_reading(1)
        await telemetry.ingest([raw])
        clock.advance(31 * DAY)
        if stores.tables is None:
            await retention_job(stores, clock).run()
        else:
            tables = stores.tables
            key = {"batch_id": {"S": raw["batch_id"]}}
            await tables.engine.call("DeleteItem", {"TableName": tables.markers.name, "Key": key})
        others = [raw, raw_reading(1, sensors={}), raw, raw_reading(2)]
        report = await telemetry.ingest(others)
        assert report == IntakeReport(
            acknowledged=[others[3]["batch_id"]],
            duplicates=[raw["batch_id"]] * 2,
            rejected=[conflict(1, others[1])],
        )
        assert await stored(stores) == [reading(1), reading(2)]

    async def test_until_its_last_moment_it_is_a_duplicate_and_then_too_old(
        self, telemetry: Telemetry, clock: ManualClock
    ) -> None:
        raw = raw_reading(1, timestamp_ms=NOW_MS)
        await telemetry.ingest([raw])
        clock.advance(RETENTION.duration_ms / 1000 - 0.25)
        assert (await telemetry.ingest([raw])).duplicates == [raw["batch_id"]]
        clock.advance(0.25)
        [rejection] = (await telemetry.ingest([raw])).rejected
        assert rejection.code is RejectionCode.TOO_OLD

    async def test_a_clock_that_goes_back_does_not_matter(
        self, telemetry: Telemetry, clock: ManualClock
    ) -> None:
        await telemetry.ingest([raw_reading(1)])
        clock.advance(-3600)
        report = await telemetry.ingest([raw_reading(1), raw_reading(2)])
        assert (len(report.acknowledged), len(report.duplicates)) == (1, 1)
        assert (await telemetry.get_device(DEVICE)).last_seen_at == NOW_MS

    async def test_readings_of_the_future_are_kept(
        self, telemetry: Telemetry, clock: ManualClock
    ) -> None:
        """A board's clock may be wrong; its readings count by the time that it says."""
        ahead = raw_reading(1, timestamp_ms=4_102_444_799_999)
        await telemetry.ingest([ahead, raw_reading(2)])
        assert (await telemetry.latest(DEVICE)).timestamp_ms == 4_102_444_799_999
        clock.advance(200 * DAY)
        assert (await telemetry.ingest([ahead])).duplicates == [ahead["batch_id"]]
        page = await telemetry.list_readings(DEVICE, limit=5)
        assert [each.batch_id for each in page.items] == [ahead["batch_id"]]

    async def test_resent_in_parts_and_out_of_order(
        self, stores: Stores, telemetry: Telemetry
    ) -> None:
        """As a board does that lost its answers and rebooted."""
        randomness = random.Random(11)
        everything = [raw_reading(n) for n in range(120)]
        acknowledged: list[str] = []
        for _ in range(25):
            raw = randomness.choices(everything, k=randomness.randint(1, 30))
            report = await telemetry.ingest(raw)
            check_accounted(raw, report)
            assert report.rejected == []
            acknowledged += report.acknowledged
        assert len(acknowledged) == len(set(acknowledged))
        there = await stored(stores)
        assert {each.batch_id for each in there} == set(acknowledged) == await markers(stores)
        assert len(there) == len(acknowledged)


NUMBERS: dict[str, tuple[float, str]] = {
    "whole": (22.0, "22"),
    "negative_zero": (-0.0, "0"),
    "zero": (0, "0"),
    "fraction": (22.5, "22.5"),
    "third": (1 / 3, "0.3333333333333333"),
    "tenths": (0.1 + 0.2, "0.30000000000000004"),
    "exact": (2**53 - 1, "9007199254740991"),
    "negative": (-(2**53) + 1, "-9007199254740991"),
    "at_the_edge": (2**53, "9007199254740992.0"),
    "beyond": (2**53 + 1, "9007199254740992.0"),
    "power": (2**60, "1.152921504606847e+18"),
    "negative_power": (-(2**60), "-1.152921504606847e+18"),
    "large": (1e17, "1e+17"),
    "huge": (1e125, "1e+125"),
    "huge_integer": (10**125, "1e+125"),
    "largest": (9.9e125, "9.9e+125"),
    "largest_negative": (-9.9e125, "-9.9e+125"),
    "tiny": (1e-130, "1e-130"),
    "tiny_negative": (-1.234567890123456e-129, "-1.234567890123456e-129"),
    "long": (123456789.12345679, "123456789.12345679"),
}
"""Each with the form that it has ever after."""


class TestNumbers:
    async def test_come_back_the_same_from_every_engine(
        self, stores: Stores, telemetry: Telemetry
    ) -> None:
        sensors = {name: value for name, (value, _) in NUMBERS.items()}
        await telemetry.ingest([raw_reading(1, sensors=sensors)])
        [there] = await stored(stores)
        forms = {name: repr(value) for name, value in there.sensors.items()}
        assert forms == {name: form for name, (_, form) in NUMBERS.items()}
        assert there.content_hash == reading(1, sensors=sensors).content_hash

    async def test_a_number_sent_again_in_another_form_is_the_same(
        self, stores: Stores, telemetry: Telemetry
    ) -> None:
        forms: dict[str, list[float]] = {
            "whole": [22, 22.0],
            "zero": [0, -0.0, 0.0],
            "power": [2**60, float(2**60), 1152921504606847000],
            "large": [1e17, 10**17],
            "huge": [1e125, 10**125],
            "beyond": [2**53 + 1, 2**53],
        }
        for number, values in enumerate(forms.values()):
            first = await telemetry.ingest([raw_reading(number, sensors={"t": values[0]})])
            assert len(first.acknowledged) == 1
            again = [raw_reading(number, sensors={"t": value}) for value in values]
            assert (await telemetry.ingest(again)).duplicates == names(again)
        assert len(await stored(stores)) == len(forms)

    async def test_neighbours_are_not_the_same(self, telemetry: Telemetry) -> None:
        await telemetry.ingest([raw_reading(1, sensors={"t": 0.3})])
        report = await telemetry.ingest([raw_reading(1, sensors={"t": 0.1 + 0.2})])
        assert [each.code for each in report.rejected] == [CONFLICT]

    async def test_are_the_same_after_the_marker_is_gone_too(
        self, stores: Stores, telemetry: Telemetry, clock: ManualClock
    ) -> None:
        """What decides then on DynamoDB is worked out from the stored numbers."""
        sensors = {name: value for name, (value, _) in NUMBERS.items()}
        raw = raw_reading(1, sensors=sensors)
        await telemetry.ingest([raw])
        if stores.tables is not None:
            tables = stores.tables
            key = {"batch_id": {"S": raw["batch_id"]}}
            await tables.engine.call("DeleteItem", {"TableName": tables.markers.name, "Key": key})
        clock.advance(31 * DAY)
        assert (await telemetry.ingest([raw])).duplicates == [raw["batch_id"]]
        assert clock.now() == NOW + 31 * DAY
