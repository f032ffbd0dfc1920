"""A deleted device, its readings and their markers are gone on every engine."""

import pytest

from sandyard.telemetry.errors import DeviceNotFoundError
from sandyard.telemetry.model import RejectionCode
from sandyard.telemetry.service import Telemetry
from sandyard.telemetry.verification import verify
from tests.support.clocks import ManualClock
from tests.support.telemetry.engines import (
    DAY,
    DEVICE,
    NOW_MS,
    OTHER_DEVICE,
    Stores,
    find_device,
    markers,
    raw_reading,
    reading,
    register,
    registration,
    retention_job,
    service_on,
    stored,
)


async def test_a_device_goes_with_its_readings_and_their_markers(
    stores: Stores, telemetry: Telemetry
) -> None:
    await register(stores, DEVICE, OTHER_DEVICE)
    for start in range(0, 700, 100):
        await telemetry.ingest([raw_reading(start + n) for n in range(100)])
    others = [raw_reading(n, hardware_id=OTHER_DEVICE) for n in range(3)]
    await telemetry.ingest(others)
    deleted = await telemetry.delete_device(DEVICE)
    assert deleted.hardware_id == DEVICE
    assert await find_device(stores.telemetry, DEVICE) is None
    assert await stored(stores) == []
    assert await markers(stores) == {each["batch_id"] for each in others}
    assert len(await stored(stores, OTHER_DEVICE)) == 3
    with pytest.raises(DeviceNotFoundError):
        await telemetry.delete_device(DEVICE)
    report = await telemetry.ingest([raw_reading(1)])
    assert [each.code for each in report.rejected] == [RejectionCode.DEVICE_NOT_REGISTERED]


async def test_a_deleted_device_may_register_and_send_the_same_again(
    stores: Stores, telemetry: Telemetry, clock: ManualClock
) -> None:
    first = await telemetry.register(registration(), key_id="k")
    await telemetry.ingest([raw_reading(1)])
    await telemetry.delete_device(DEVICE)
    clock.advance(1)
    again = await telemetry.register(registration(), key_id="k")
    assert again.confirmation_id != first.confirmation_id
    assert again.sequence > first.sequence
    report = await telemetry.ingest([raw_reading(1)])
    assert report.acknowledged == [raw_reading(1)["batch_id"]]
    history = await verify(stores.telemetry, stores.keys, stores.log)
    assert history.problems == []


async def test_a_marker_of_another_device_stays(stores: Stores, telemetry: Telemetry) -> None:
    await register(stores, DEVICE, OTHER_DEVICE)
    shared = raw_reading(1, batch_id="shared")
    await telemetry.ingest([shared])
    conflict = await telemetry.ingest([shared | {"hardware_id": OTHER_DEVICE}])
    assert [each.code for each in conflict.rejected] == [RejectionCode.BATCH_ID_CONFLICT]
    await telemetry.delete_device(OTHER_DEVICE)
    assert await markers(stores) == {"shared"}
    assert (await telemetry.ingest([shared])).duplicates == ["shared"]


async def test_readings_that_outlive_their_device_expire(
    sql_stores: Stores, clock: ManualClock
) -> None:
    """Those of a request that was under way when the device was deleted."""
    devices = await register(sql_stores)
    await service_on(sql_stores, clock).delete_device(DEVICE)
    await sql_stores.telemetry.insert_readings([reading(1)], devices=devices, now_ms=NOW_MS)
    clock.advance(91 * DAY)
    assert (await retention_job(sql_stores, clock).run()).readings_removed == 1
    assert await stored(sql_stores) == []
