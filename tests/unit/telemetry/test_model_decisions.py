"""Decisions about devices and keys, at their edges."""

from dataclasses import replace
from typing import Any

import pytest

from sandyard.kit.changes.events import Effect
from sandyard.kit.changes.transitions import Cause
from sandyard.telemetry.errors import ApiKeyNotFoundError, DeviceNotFoundError
from sandyard.telemetry.model import (
    ApiKey,
    Device,
    Registration,
    Retention,
    decide_registration,
    decide_rename,
    decide_revocation,
    marker_expires_at,
    new_api_key,
)

NOW_MS = 1_800_000_000_000
CAUSE = Cause("key:k", NOW_MS + 789)
DEVICE = Device(
    hardware_id="AA:BB:CC:DD:EE:01",
    confirmation_id="first",
    capabilities={"sensors": ["bme280"]},
    first_registered_at=NOW_MS - 7000,
    last_seen_at=NOW_MS - 2000,
    last_boot_id="boot",
    firmware_version="1",
    friendly_name=None,
    sequence=3,
)
SAID = Registration(
    hardware_id=DEVICE.hardware_id,
    boot_id="boot",
    firmware_version="1",
    capabilities={"sensors": ["bme280"]},
    friendly_name=None,
)
KEY = ApiKey(
    key_id="k",
    api_key_hash="secret",
    created_at=NOW_MS - 7000,
    is_active=True,
    description=None,
    last_used_at=None,
    sequence=1,
)


def decide(device: Device | None, said: Registration) -> Any:
    return decide_registration(device, said, confirmation_id="second", cause=CAUSE)


class TestRegistration:
    def test_makes_a_new_device_with_its_whole_state(self) -> None:
        transition = decide(None, replace(SAID, friendly_name="attic"))
        assert transition.before is None
        device = transition.result
        assert (device.confirmation_id, device.friendly_name) == ("second", "attic")
        assert (device.first_registered_at, device.last_seen_at) == (NOW_MS, NOW_MS)
        [event] = transition.events
        assert (event.kind, event.effect) == ("device.registered", Effect.FULL)
        assert event.sequence == device.sequence == CAUSE.at_ms, "greater than before a deletion"
        assert "last_seen_at" not in event.data
        assert event.data["first_registered_at"] == "2027-01-15T08:00:00Z"

    def test_registering_the_same_again_changes_nothing(self) -> None:
        assert decide(DEVICE, SAID) is None

    def test_changes_what_is_different_and_keeps_the_confirmation(self) -> None:
        transition = decide(DEVICE, replace(SAID, firmware_version="2", boot_id="again"))
        assert transition.result.confirmation_id == "first"
        [event] = transition.events
        assert (event.kind, event.sequence) == ("device.updated", 4)
        assert event.data == {"firmware_version": "2", "last_boot_id": "again"}

    def test_a_registration_names_only_a_device_without_a_name(self) -> None:
        named = decide(DEVICE, replace(SAID, friendly_name="attic"))
        assert named.result.friendly_name == "attic"
        assert (
            decide(replace(DEVICE, friendly_name="cellar"), replace(SAID, friendly_name="x"))
            is None
        )


class TestRename:
    def test_changes_the_name_alone(self) -> None:
        transition = decide_rename(DEVICE, "attic", CAUSE)
        assert transition is not None
        assert transition.events[0].data == {"friendly_name": "attic"}

    def test_to_the_same_name_changes_nothing(self) -> None:
        assert decide_rename(DEVICE, None, CAUSE) is None

    def test_renaming_an_unknown_device_is_an_error(self) -> None:
        with pytest.raises(DeviceNotFoundError):
            decide_rename(None, "attic", CAUSE)


class TestKeys:
    def test_the_event_of_a_new_key_has_no_hash(self) -> None:
        transition = new_api_key(key_id="k", api_key_hash="secret", description="d", cause=CAUSE)
        assert transition.result.is_active
        assert transition.result.created_at == NOW_MS
        assert transition.events[0].data["created_at"] == "2027-01-15T08:00:00Z"
        assert "secret" not in str(transition.events)

    def test_a_revoked_one_is_inactive(self) -> None:
        transition = decide_revocation(KEY, CAUSE)
        assert transition is not None
        assert transition.events[0].data == {"is_active": False}

    def test_a_second_revocation_changes_nothing(self) -> None:
        assert decide_revocation(replace(KEY, is_active=False), CAUSE) is None

    def test_an_unknown_one_is_an_error(self) -> None:
        with pytest.raises(ApiKeyNotFoundError):
            decide_revocation(None, CAUSE)


class TestRetention:
    def test_the_oldest_reading_is_the_first_inside_the_window(self) -> None:
        retention = Retention(100_000)
        assert retention.oldest_ms(1_000_000) == 900_001
        assert retention.expires_at(900_001) == 1_000_001

    def test_a_marker_lives_thirty_days(self) -> None:
        assert marker_expires_at(1000) == 1000 + 30 * 86_400_000

    def test_a_marker_on_sql_outlives_its_reading(self) -> None:
        month = 30 * 86_400_000
        of_old, of_new = (
            Retention(month).marker_expires_with_reading_at(at_ms, now_ms=1_000_000)
            for at_ms in (0, 1_000_000)
        )
        assert (of_old, of_new) == (1_000_000 + month, 1_000_000 + month + 1000)
