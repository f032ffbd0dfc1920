"""Telemetry on DynamoDB: its tables and items to the letter."""

from collections.abc import Mapping
from typing import Any

import pytest

from sandyard.telemetry.model import hash_api_key
from sandyard.telemetry.stores.dynamo_tables import TelemetryTables
from tests.faults.telemetry.stores import NOW_TEXT, UUID4, keys_on, on_the_wire
from tests.support.clocks import ManualClock
from tests.support.telemetry.engines import (
    BOOT_ID,
    DAY,
    DEVICE,
    NOW,
    NOW_MS,
    RETENTION_SEC,
    Stores,
    items_of,
    on_dynamodb,
    raw_reading,
    reading,
    registration,
    service_on,
    stored,
)


class TestTables:
    SHAPES: Mapping[str, tuple[dict[str, str], dict[str, dict[str, str]]]] = {
        "devices": (
            {"hardware_id": "HASH"},
            {"gsi1": {"gsi1pk": "HASH", "gsi1sk": "RANGE"}},
        ),
        "device_readings": ({"hardware_id": "HASH", "ts_batch": "RANGE"}, {}),
        "processed_batches": ({"batch_id": "HASH"}, {}),
        "api_keys": (
            {"key_id": "HASH"},
            {
                "api_key_hash_index": {"api_key_hash": "HASH"},
                "gsi1": {"gsi1pk": "HASH", "gsi1sk": "RANGE"},
            },
        ),
    }

    async def test_are_these_four_and_the_event_log(self, tables: TelemetryTables) -> None:
        prefix = tables.devices.name.removesuffix("devices")
        names = [*self.SHAPES, "telemetry_events"]
        assert tables.table_names == [f"{prefix}{name}" for name in names]
        assert (tables.readings.name, tables.markers.name, tables.keys.name) == tuple(
            f"{prefix}{name}" for name in ("device_readings", "processed_batches", "api_keys")
        )

    @pytest.mark.parametrize("name", SHAPES)
    async def test_have_these_keys_and_indexes(self, tables: TelemetryTables, name: str) -> None:
        prefix = tables.devices.name.removesuffix("devices")
        answer = await tables.engine.call("DescribeTable", {"TableName": f"{prefix}{name}"})
        table = answer["Table"]

        def keys(described: Mapping[str, Any]) -> dict[str, str]:
            return {each["AttributeName"]: each["KeyType"] for each in described["KeySchema"]}

        indexes = table.get("GlobalSecondaryIndexes", [])
        there = (keys(table), {each["IndexName"]: keys(each) for each in indexes})
        assert there == self.SHAPES[name]
        assert {each["Projection"]["ProjectionType"] for each in indexes} <= {"ALL"}
        assert {each["AttributeType"] for each in table["AttributeDefinitions"]} == {"S"}

    @pytest.mark.parametrize(
        ("name", "attribute"),
        [
            ("devices", None),
            ("device_readings", "expiration_time"),
            ("processed_batches", "expiration_time"),
            ("api_keys", None),
        ],
    )
    async def test_collect_what_has_expired(
        self, tables: TelemetryTables, name: str, attribute: str | None
    ) -> None:
        prefix = tables.devices.name.removesuffix("devices")
        answer = await tables.engine.call("DescribeTimeToLive", {"TableName": f"{prefix}{name}"})
        described = answer["TimeToLiveDescription"]
        assert described.get("AttributeName") == attribute
        is_on = described["TimeToLiveStatus"] in ("ENABLED", "ENABLING")
        assert is_on == (attribute is not None)

    async def test_are_made_once(self, tables: TelemetryTables) -> None:
        assert set((await tables.create()).values()) == {"exists"}
        await tables.check()


class TestItems:
    async def test_a_device(self, tables: TelemetryTables, clock: ManualClock) -> None:
        telemetry = service_on(on_dynamodb(tables), clock)
        device = await telemetry.register(registration(name="greenhouse"), key_id="test")
        assert UUID4.match(device.confirmation_id)
        clock.advance(61.9)
        await telemetry.register(registration(), key_id="test")
        assert await on_the_wire(tables, "devices") == [
            {
                "hardware_id": {"S": DEVICE},
                "confirmation_id": {"S": device.confirmation_id},
                "capabilities": {
                    "M": {
                        "sensors": {"L": [{"S": "bme280"}]},
                        "features": {"M": {"tft_display": {"BOOL": True}}},
                    }
                },
                "first_registered_at": {"S": NOW_TEXT},
                "last_seen_at": {"S": "2027-01-15T08:01:01Z"},
                "last_boot_id": {"S": BOOT_ID},
                "firmware_version": {"S": "1.0.16"},
                "friendly_name": {"S": "greenhouse"},
                "gsi1pk": {"S": "devices"},
                "gsi1sk": {"S": "2027-01-15T08:01:01Z"},
                "sequence": {"N": str(NOW_MS)},
            }
        ]

    async def test_a_device_that_was_seen_by_its_readings(
        self, tables: TelemetryTables, past_faults: Stores, clock: ManualClock
    ) -> None:
        await service_on(past_faults, clock).ingest([raw_reading(1)])
        [device] = [
            each for each in await items_of(tables, "devices") if each["hardware_id"] == DEVICE
        ]
        assert device["last_seen_at"] == device["gsi1sk"] == NOW_TEXT
        assert "friendly_name" not in device

    async def test_a_reading_and_its_marker(
        self, tables: TelemetryTables, past_faults: Stores, clock: ManualClock
    ) -> None:
        telemetry = service_on(past_faults, clock)
        await telemetry.rename_device(DEVICE, "greenhouse")
        clock.advance(10.75)
        sent = reading(1, timestamp_ms=NOW_MS + 1999)
        await telemetry.ingest([raw_reading(1, timestamp_ms=NOW_MS + 1999)])
        assert await on_the_wire(tables, "readings") == [
            {
                "hardware_id": {"S": DEVICE},
                "ts_batch": {"S": f"{NOW_MS + 1999}#{sent.batch_id}"},
                "timestamp_ms": {"N": str(NOW_MS + 1999)},
                "received_at": {"S": "2027-01-15T08:00:10Z"},
                "batch_id": {"S": sent.batch_id},
                "boot_id": {"S": BOOT_ID},
                "firmware_version": {"S": "1.0.16"},
                "friendly_name": {"S": "greenhouse"},
                "sensors": {"M": {"bme280_temp_c": {"N": "22.5"}, "humidity_pct": {"N": "1"}}},
                "sensor_status": {"M": {"bme280": {"S": "ok"}}},
                "expiration_time": {"N": str(NOW + 1 + RETENTION_SEC)},
            }
        ]
        [marker] = await on_the_wire(tables, "markers")
        assert marker.pop("content_hash") == {"S": sent.content_hash}
        assert marker.pop("intake_id")["S"]
        assert marker == {
            "batch_id": {"S": sent.batch_id},
            "hardware_id": {"S": DEVICE},
            "received_at": {"S": "2027-01-15T08:00:10Z"},
            "expiration_time": {"N": str(NOW + 10 + 30 * DAY)},
        }

    async def test_the_sort_key_has_thirteen_digits(
        self, tables: TelemetryTables, past_faults: Stores
    ) -> None:
        early = ManualClock(946_684_801)
        report = await service_on(past_faults, early).ingest(
            [raw_reading(timestamp_ms=at, batch_id="b") for at in (946_684_800_000,)]
        )
        assert report.acknowledged == ["b"]
        [item] = await items_of(tables, "readings")
        assert item["ts_batch"] == "0946684800000#b"

    async def test_a_key(self, tables: TelemetryTables, clock: ManualClock) -> None:
        keys = keys_on(on_dynamodb(tables), clock, ManualClock(0))
        new = await keys.create(description="greenhouse cluster")
        assert UUID4.match(new.key_id)
        item = {
            "key_id": {"S": new.key_id},
            "api_key_hash": {"S": hash_api_key("pepper", new.api_key)},
            "created_at": {"S": NOW_TEXT},
            "is_active": {"BOOL": True},
            "description": {"S": "greenhouse cluster"},
            "gsi1pk": {"S": "api_keys"},
            "gsi1sk": {"S": NOW_TEXT},
            "sequence": {"N": "1"},
        }
        assert await on_the_wire(tables, "keys") == [item]
        clock.advance(60)
        await keys.authenticate(new.api_key)
        item["last_used_at"] = {"S": "2027-01-15T08:01:00Z"}
        assert await on_the_wire(tables, "keys") == [item]
        await keys.revoke(new.key_id)
        revoked = item | {"is_active": {"BOOL": False}, "sequence": {"N": "2"}}
        assert await on_the_wire(tables, "keys") == [revoked]

    async def test_a_marker_of_another_program_counts_too(
        self, tables: TelemetryTables, past_faults: Stores, clock: ManualClock
    ) -> None:
        """One that has only what the tables' own document names."""
        telemetry = service_on(past_faults, clock)
        await telemetry.ingest([raw_reading(1)])
        [marker] = await items_of(tables, "markers")
        del marker["content_hash"], marker["intake_id"]
        await tables.markers.put(marker)
        report = await telemetry.ingest([raw_reading(1), raw_reading(1, sensors={})])
        assert len(report.duplicates) == 1
        assert [each.code for each in report.rejected] == ["BATCH_ID_CONFLICT"]
        assert await stored(past_faults) == [reading(1)]
