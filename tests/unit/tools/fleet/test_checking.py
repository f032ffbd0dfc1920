"""The check of what the server holds finds every difference."""

from collections.abc import Sequence
from typing import Any

import pytest

from sandyard.tools.fleet.board import Reading, compare_latest
from tests.unit.tools.fleet.boards import HARDWARE_ID, kinds, measured

# The check


def test_what_is_held_as_it_was_measured_is_no_difference() -> None:
    device = measured()
    newest_first = list(device.readings.values())[::-1]
    assert kinds(newest_first, device) == []
    assert list(compare_latest(HARDWARE_ID, device.readings, newest_first[0])) == []


def test_the_time_of_receipt_which_the_server_adds_is_no_difference() -> None:
    device = measured()
    held = [{**each, "received_at": "2026-10-30T09:00:02Z"} for each in device.readings.values()]
    assert kinds(held, device) == []
    assert list(compare_latest(HARDWARE_ID, device.readings, held[-1])) == []


def test_a_missing_reading_is_found() -> None:
    device = measured()
    lost, *held = device.readings.values()
    assert kinds(held, device) == [("missing", lost["batch_id"])]


def test_a_doubled_reading_is_found() -> None:
    device = measured()
    held = list(device.readings.values())
    assert kinds([*held, held[7]], device) == [
        ("doubled", f"{held[7]['batch_id']} is there 2 times")
    ]


CHANGES: dict[str, Any] = {
    "hardware_id": "02:00:00:00:00:02",
    "timestamp_ms": 1_700_000_000_000,
    "boot_id": "another",
    "firmware_version": "0",
    "friendly_name": "another",
    "sensors": {},
    "sensor_status": {},
}


def test_every_field_but_the_id_itself_is_changed_in_turn() -> None:
    [reading] = measured(1).readings.values()
    assert reading.keys() == {*CHANGES, "batch_id"}


@pytest.mark.parametrize("field", CHANGES)
def test_a_changed_reading_is_found(field: str) -> None:
    device = measured()
    first, *others = device.readings.values()
    [(kind, detail)] = kinds([{**first, field: CHANGES[field]}, *others], device)
    assert kind == "changed"
    assert detail.startswith(f"{first['batch_id']} {field} is {CHANGES[field]!r}, was ")


def test_a_value_that_lost_its_last_digit_is_found() -> None:
    device = measured()
    first, *others = device.readings.values()
    sensors = first["sensors"] | {"pressure_hpa": first["sensors"]["pressure_hpa"] + 1e-12}
    assert [kind for kind, _ in kinds([{**first, "sensors": sensors}, *others], device)] == [
        "changed"
    ]


def test_a_field_that_is_gone_or_new_is_found() -> None:
    device = measured(2)
    first, second = device.readings.values()
    without = {name: value for name, value in first.items() if name != "sensors"}
    assert kinds([without, {**second, "extra": 1}], device) == [
        ("changed", f"{first['batch_id']} has no sensors"),
        ("changed", f"{second['batch_id']} has a new field extra"),
    ]


def test_a_reading_that_was_never_measured_is_found() -> None:
    device = measured()
    foreign = {**next(iter(device.readings.values())), "batch_id": "foreign"}
    assert kinds([*device.readings.values(), foreign], device) == [
        ("unknown", "foreign was never measured")
    ]


def test_the_latest_is_of_the_greatest_time_or_a_difference() -> None:
    device = measured()
    by_time = sorted(device.readings.values(), key=lambda reading: int(reading["timestamp_ms"]))
    older = next(each for each in reversed(by_time) if each["timestamp_ms"] < max_time(by_time))
    changed = {**by_time[-1], "sensors": {}}
    for wrong, words in ((older, "it is of"), (changed, "not as it was"), (None, "there is none")):
        [difference] = compare_latest(HARDWARE_ID, device.readings, wrong)
        assert difference.kind == "latest"
        assert words in difference.detail


def max_time(readings: Sequence[Reading]) -> int:
    return max(int(reading["timestamp_ms"]) for reading in readings)
