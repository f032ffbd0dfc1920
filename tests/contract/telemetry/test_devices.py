"""What every TelemetryStore promises of devices."""

import asyncio
import random
from dataclasses import replace

import pytest

from sandyard.kit import ids
from sandyard.kit.paging import InvalidCursorError, encode_cursor
from sandyard.telemetry.model import Device, DeviceOrder
from sandyard.telemetry.ports import TelemetryStore
from tests.contract.telemetry.readings import OTHER_BOOT_ID, keep
from tests.support.telemetry.engines import (
    BOOT_ID,
    DEVICE,
    NOW,
    NOW_MS,
    OTHER_DEVICE,
    Stores,
    hardware,
    reading,
    register,
    register_on,
    registration,
    rename_on,
)


class TestRegister:
    async def test_says_all_about_a_new_device(self, telemetry_store: TelemetryStore) -> None:
        device = await register_on(
            telemetry_store,
            registration(name="greenhouse"),
            confirmation_id=OTHER_BOOT_ID,
            at_ms=NOW_MS,
        )
        assert device.hardware_id == DEVICE
        assert device.confirmation_id == OTHER_BOOT_ID
        assert device.capabilities == registration().capabilities
        assert device.first_registered_at == device.last_seen_at == NOW_MS
        assert (device.last_boot_id, device.firmware_version) == (BOOT_ID, "1.0.16")
        assert device.friendly_name == "greenhouse"
        assert await telemetry_store.find_devices([DEVICE, OTHER_DEVICE]) == {DEVICE: device}

    async def test_a_second_time_changes_what_is_new_and_keeps_the_confirmation(
        self, telemetry_store: TelemetryStore
    ) -> None:
        first = await register_on(
            telemetry_store,
            registration(name="greenhouse"),
            confirmation_id=ids.uuid4(),
            at_ms=NOW_MS,
        )
        again = replace(
            registration(name="attic"),
            boot_id=OTHER_BOOT_ID,
            firmware_version="2.0",
            capabilities={"sensors": [], "features": {}},
        )
        second = await register_on(
            telemetry_store, again, confirmation_id=ids.uuid4(), at_ms=NOW_MS + 5000
        )
        assert second == replace(
            first,
            last_boot_id=OTHER_BOOT_ID,
            firmware_version="2.0",
            capabilities={"sensors": [], "features": {}},
            last_seen_at=NOW_MS + 5000,
            sequence=first.sequence + 1,
        )
        assert await telemetry_store.find_devices([DEVICE]) == {DEVICE: second}

    async def test_fifty_at_once_get_one_confirmation(
        self, telemetry_store: TelemetryStore
    ) -> None:
        devices = await asyncio.gather(
            *(
                register_on(
                    telemetry_store, registration(), confirmation_id=ids.uuid4(), at_ms=NOW_MS
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
            device = await register_on(
                stores.telemetry,
                registration(name=name),
                confirmation_id=ids.uuid4(),
                at_ms=NOW_MS,
            )
            names.append(device.friendly_name)
        assert names == ["first", "first", "first"]

    async def test_a_clock_that_is_behind_moves_nothing_back(self, stores: Stores) -> None:
        for now, seen in ((NOW, NOW), (NOW - 60, NOW), (NOW + 1, NOW + 1)):
            device = await register_on(
                stores.telemetry,
                replace(registration(), firmware_version=f"at {now}"),
                confirmation_id=ids.uuid4(),
                at_ms=now * 1000,
            )
            assert device.last_seen_at == seen * 1000
            assert device.first_registered_at == NOW_MS
            assert device.firmware_version == f"at {now}"
            page = await stores.telemetry.page_of_devices(limit=10, cursor=None)
            assert page.items == [device]


class TestDevices:
    async def test_a_device_gets_and_loses_its_name(self, stores: Stores) -> None:
        [device] = (await register(stores)).values()
        for name in ("greenhouse", "Gewächshaus 🌱", None, None, "again"):
            renamed = await rename_on(stores.telemetry, DEVICE, name)
            assert renamed is not None
            assert renamed == replace(device, friendly_name=name, sequence=renamed.sequence)
            assert await stores.telemetry.find_devices([DEVICE]) == {DEVICE: renamed}

    async def test_renaming_an_unknown_device_is_refused(self, stores: Stores) -> None:
        assert await rename_on(stores.telemetry, DEVICE, "name") is None
        assert await stores.telemetry.find_devices([DEVICE]) == {}

    async def test_a_name_that_was_taken_away_may_come_from_the_device_again(
        self, stores: Stores
    ) -> None:
        await register(stores)
        await rename_on(stores.telemetry, DEVICE, "by hand")
        await rename_on(stores.telemetry, DEVICE, None)
        device = await register_on(
            stores.telemetry,
            registration(name="by itself"),
            confirmation_id=ids.uuid4(),
            at_ms=NOW_MS,
        )
        assert device.friendly_name == "by itself"

    async def test_the_most_recently_seen_come_first_page_by_page(self, stores: Stores) -> None:
        seen = random.Random(3).sample(range(25), 25)
        for number, at in enumerate(seen):
            # Pairs of devices share their second.
            await register_on(
                stores.telemetry,
                registration(hardware(number)),
                confirmation_id=ids.uuid4(),
                at_ms=NOW_MS + at // 2 * 1000,
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

    async def test_the_silent_come_first_if_asked_page_by_page(self, stores: Stores) -> None:
        for number, at in enumerate(random.Random(5).sample(range(10), 10)):
            await register_on(
                stores.telemetry,
                registration(hardware(number)),
                confirmation_id=ids.uuid4(),
                at_ms=NOW_MS + at // 2 * 1000,
            )
        everyone = await stores.telemetry.page_of_devices(limit=10, cursor=None)
        listed: list[Device] = []
        cursor = None
        for size in (4, 4, 2):
            page = await stores.telemetry.page_of_devices(
                order=DeviceOrder.SILENT, limit=4, cursor=cursor
            )
            assert len(page.items) == size
            listed += page.items
            cursor = page.next_cursor
        assert cursor is None
        assert {each.hardware_id for each in listed} == {
            each.hardware_id for each in everyone.items
        }
        seen = [each.last_seen_at for each in listed]
        assert seen == sorted(seen)

    async def test_devices_are_found_by_a_part_of_their_name_or_id(self, stores: Stores) -> None:
        names = {1: "Greenhouse north", 2: "greenhouse SOUTH", 3: "100 %", 4: None, 5: "Cellar_1"}
        for number, name in names.items():
            await register_on(
                stores.telemetry,
                registration(hardware(number), name=name),
                confirmation_id=ids.uuid4(),
                at_ms=NOW_MS + number * 1000,
            )

        async def found(search: str) -> list[int]:
            page = await stores.telemetry.page_of_devices(search=search, limit=10, cursor=None)
            ids_found = [each.hardware_id for each in page.items]
            return [number for number in names for each in ids_found if each == hardware(number)]

        assert await found("GREEN") == [1, 2]
        assert await found("south") == [2]
        assert await found("%") == [3]
        assert await found("r_1") == [5]
        assert await found(hardware(4).lower()) == [4]
        assert await found("nowhere") == []

    async def test_a_search_is_listed_page_by_page(self, stores: Stores) -> None:
        for number in range(12):
            await register_on(
                stores.telemetry,
                registration(hardware(number), name=f"{'even' if number % 2 == 0 else 'odd'}"),
                confirmation_id=ids.uuid4(),
                at_ms=NOW_MS + number * 1000,
            )
        listed: list[str] = []
        cursor = None
        for size in (4, 2):
            page = await stores.telemetry.page_of_devices(search="even", limit=4, cursor=cursor)
            assert len(page.items) == size
            listed += [each.hardware_id for each in page.items]
            cursor = page.next_cursor
        assert cursor is None
        assert listed == [hardware(number) for number in (10, 8, 6, 4, 2, 0)]

    async def test_a_cursor_is_of_its_own_order_only(self, stores: Stores) -> None:
        await register(stores, *(hardware(n) for n in range(3)))
        for order, other in (
            (DeviceOrder.LAST_SEEN, DeviceOrder.SILENT),
            (DeviceOrder.SILENT, DeviceOrder.LAST_SEEN),
        ):
            page = await stores.telemetry.page_of_devices(order=order, limit=1, cursor=None)
            with pytest.raises(InvalidCursorError):
                await stores.telemetry.page_of_devices(
                    order=other, limit=1, cursor=page.next_cursor
                )

    async def test_a_cursor_holds_the_time_as_text(self, stores: Stores) -> None:
        """As cursors always did, so that those given out before a restart go on."""
        for number in range(3):
            await register_on(
                stores.telemetry,
                registration(hardware(number)),
                confirmation_id=ids.uuid4(),
                at_ms=NOW_MS + number * 1000,
            )
        cursor = encode_cursor("devices", ["2027-01-15T08:00:01Z", hardware(1)])
        first = await stores.telemetry.page_of_devices(limit=2, cursor=None)
        assert first.next_cursor == cursor
        [last] = (await stores.telemetry.page_of_devices(limit=2, cursor=cursor)).items
        assert last.hardware_id == hardware(0)

    async def test_a_device_that_sends_moves_to_the_front(self, stores: Stores) -> None:
        await register(stores, DEVICE, OTHER_DEVICE)
        await keep(stores, reading(1))
        await keep(stores, reading(1, hardware_id=OTHER_DEVICE), now_ms=NOW_MS + 1000)
        await keep(stores, reading(2), now_ms=NOW_MS + 2000)
        page = await stores.telemetry.page_of_devices(limit=10, cursor=None)
        assert [each.hardware_id for each in page.items] == [DEVICE, OTHER_DEVICE]

    async def test_a_full_last_page_has_no_next(self, stores: Stores) -> None:
        await register(stores, *(hardware(n) for n in range(4)))
        page = await stores.telemetry.page_of_devices(limit=4, cursor=None)
        assert (len(page.items), page.next_cursor) == (4, None)
        assert await stores.telemetry.page_of_devices(limit=5, cursor=None) == page
