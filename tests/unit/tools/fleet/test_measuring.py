"""What simulated boards measure."""

from sandyard.telemetry.intake import is_hardware_id, validate
from sandyard.telemetry.model import Reading as JudgedReading
from sandyard.tools.fleet.board import new_hardware_id
from tests.unit.tools.fleet.boards import DAY_MS, NOW_MS, measured

# What is measured


def test_every_reading_is_one_that_the_server_must_take() -> None:
    device = measured(1000)
    assert len(device.readings) == 1000
    for reading in device.readings.values():
        validated = validate(dict(reading), oldest_ms=NOW_MS - 4 * DAY_MS)
        assert isinstance(validated, JudgedReading), validated


def test_readings_reach_back_days_and_some_are_of_the_same_millisecond() -> None:
    times = [reading["timestamp_ms"] for reading in measured(1000).readings.values()]
    assert times == sorted(times)
    assert NOW_MS - 4 * DAY_MS < times[0] < NOW_MS - DAY_MS / 2
    assert NOW_MS - DAY_MS < times[-1] <= NOW_MS
    assert 900 < len(set(times)) < 1000


def test_a_board_boots_anew_between_its_readings() -> None:
    device = measured(1000)
    assert {reading["boot_id"] for reading in device.readings.values()} == {
        boot.boot_id for boot in device.boots
    }


def test_the_same_seed_measures_the_same() -> None:
    assert measured(seed=3) == measured(seed=3)
    assert measured(seed=3) != measured(seed=4)


def test_hardware_ids_are_new_and_nobody_elses() -> None:
    made = [new_hardware_id() for _ in range(1000)]
    assert len(set(made)) == 1000
    assert all(is_hardware_id(each) for each in made)
    assert {int(each[:2], 16) & 0b11 for each in made} == {0b10}
