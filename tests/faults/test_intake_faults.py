"""Telemetry on DynamoDB: its tables and items to the letter, what calls cost, and lost answers."""

import asyncio
import re
from collections import Counter
from collections.abc import AsyncIterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from dataclasses import replace
from typing import Any

import pytest

from sandyard.kit import ids
from sandyard.kit.dynamo import DynamoPolicy
from sandyard.kit.errors import UnavailableError
from sandyard.telemetry.errors import InvalidApiKeyError
from sandyard.telemetry.keys import CACHED_SEC, ApiKeys
from sandyard.telemetry.model import IntakeReport, hash_api_key
from sandyard.telemetry.service import Telemetry
from sandyard.telemetry.stores.dynamo_tables import TelemetryTables
from tests.clocks import ManualClock
from tests.faults.proxy import FaultProxy
from tests.faults.stores import IMPATIENT, PATIENT
from tests.telemetry_engines import (
    BOOT_ID,
    DAY,
    DEVICE,
    NOW,
    NOW_MS,
    OTHER_DEVICE,
    RETENTION,
    Stores,
    check_accounted,
    items_of,
    markers,
    on_dynamodb,
    raw_reading,
    reading,
    register,
    registration,
    service_on,
    stored,
    table_prefix,
    telemetry_tables,
)

NOW_TEXT = "2027-01-15T08:00:00Z"
UUID4 = re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-4[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}\Z")

RUSHED = replace(IMPATIENT, deadline_sec=0.4)


@pytest.fixture
async def tables(dynamo_url: str) -> AsyncIterator[TelemetryTables]:
    """The four tables, reached without the proxy."""
    async with telemetry_tables(dynamo_url, prefix=table_prefix()) as tables:
        await tables.create()
        yield tables


@pytest.fixture
async def past_faults(tables: TelemetryTables) -> Stores:
    """The stores, seen past all faults, with a device that has registered."""
    stores = on_dynamodb(tables)
    await register(stores, DEVICE, OTHER_DEVICE)
    return stores


@asynccontextmanager
async def door_to(
    tables: TelemetryTables, proxy: FaultProxy, *, policy: DynamoPolicy = PATIENT
) -> AsyncIterator[Stores]:
    """The same tables as a replica sees them, through the proxy."""
    prefix = tables.devices.name.removesuffix("devices")
    async with telemetry_tables(proxy.url, prefix=prefix, policy=policy) as door:
        yield on_dynamodb(door)


@pytest.fixture
async def stores(
    tables: TelemetryTables, proxy: FaultProxy, past_faults: Stores
) -> AsyncIterator[Stores]:
    async with door_to(tables, proxy) as stores:
        proxy.reset_counts()
        yield stores


@pytest.fixture
def telemetry(stores: Stores, clock: ManualClock) -> Telemetry:
    return service_on(stores, clock)


def keys_on(stores: Stores, clock: ManualClock, monotonic: ManualClock) -> ApiKeys:
    return ApiKeys(
        stores.keys,
        pepper="pepper",
        clock=clock,
        make_key_id=ids.uuid4,
        make_api_key=ids.device_api_key,
        monotonic=monotonic.now,
    )


async def on_the_wire(tables: TelemetryTables, name: str) -> list[dict[str, Any]]:
    """The items of a table as the engine sends them."""
    payload = {"TableName": getattr(tables, name).name, "ConsistentRead": True}
    items: list[dict[str, Any]] = (await tables.engine.call("Scan", payload))["Items"]
    return items


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

    async def test_are_these_four(self, tables: TelemetryTables) -> None:
        prefix = tables.devices.name.removesuffix("devices")
        assert tables.names == [f"{prefix}{name}" for name in self.SHAPES]
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
        assert set((await tables.create()).values()) == {False}
        await tables.check()


class TestItems:
    async def test_a_device(self, tables: TelemetryTables, clock: ManualClock) -> None:
        telemetry = service_on(on_dynamodb(tables), clock)
        device = await telemetry.register(registration(name="greenhouse"))
        assert UUID4.match(device.confirmation_id)
        clock.advance(61.9)
        await telemetry.register(registration())
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
                "batch_id": {"S": sent.batch_id},
                "boot_id": {"S": BOOT_ID},
                "firmware_version": {"S": "1.0.16"},
                "friendly_name": {"S": "greenhouse"},
                "sensors": {"M": {"bme280_temp_c": {"N": "22.5"}, "humidity_pct": {"N": "1"}}},
                "sensor_status": {"M": {"bme280": {"S": "ok"}}},
                "expiration_time": {"N": str(NOW + 1 + RETENTION.seconds)},
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
        }
        assert await on_the_wire(tables, "keys") == [item]
        clock.advance(60)
        await keys.authenticate(new.api_key)
        item["last_used_at"] = {"S": "2027-01-15T08:01:00Z"}
        assert await on_the_wire(tables, "keys") == [item]
        await keys.revoke(new.key_id)
        assert await on_the_wire(tables, "keys") == [item | {"is_active": {"BOOL": False}}]

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


class TestCost:
    async def test_a_batch_is_one_read_and_a_transaction_per_reading(
        self, telemetry: Telemetry, proxy: FaultProxy
    ) -> None:
        raw = [
            raw_reading(n, hardware_id=device)
            for device in (DEVICE, OTHER_DEVICE)
            for n in range(50)
        ]
        await telemetry.ingest(raw)
        assert proxy.calls == {"BatchGetItem": 1, "TransactWriteItems": 100, "UpdateItem": 2}
        proxy.reset_counts()
        report = await telemetry.ingest(raw)
        assert len(report.duplicates) == 100
        assert proxy.calls == {"BatchGetItem": 1, "TransactWriteItems": 100}

    async def test_what_is_refused_beforehand_costs_nothing(
        self, telemetry: Telemetry, proxy: FaultProxy
    ) -> None:
        await telemetry.ingest([raw_reading(n, sensors=None) for n in range(100)])
        assert not proxy.calls
        await telemetry.ingest([raw_reading(1, hardware_id="00:00:00:00:00:00")])
        assert proxy.calls == {"BatchGetItem": 1}

    async def test_the_same_id_twice_in_a_request_is_one_transaction(
        self, telemetry: Telemetry, proxy: FaultProxy
    ) -> None:
        await telemetry.ingest([raw_reading(1), raw_reading(1), raw_reading(1, sensors={})])
        assert proxy.calls["TransactWriteItems"] == 1

    async def test_no_more_than_sixty_four_transactions_are_on_their_way(
        self, tables: TelemetryTables, proxy: FaultProxy, past_faults: Stores
    ) -> None:
        await service_on(past_faults, ManualClock(NOW)).ingest([raw_reading(999)])
        devices = await past_faults.telemetry.find_devices([DEVICE])
        portions = [[reading(n * 100 + k) for k in range(100)] for n in range(3)]
        proxy.set(delay=1, delay_sec=0.1, only=["TransactWriteItems"])
        async with door_to(tables, proxy) as stores:
            sending = asyncio.gather(
                *(stores.telemetry.keep(each, devices=devices, now=NOW) for each in portions)
            )
            most = 0
            while not sending.done():
                most = max(most, proxy.in_flight)
                await asyncio.sleep(0.002)
            assert most == 64
            assert len(await sending) == 3

    async def test_reads_are_one_query(self, telemetry: Telemetry, proxy: FaultProxy) -> None:
        await telemetry.ingest([raw_reading(n) for n in range(20)])
        proxy.reset_counts()
        await telemetry.latest(DEVICE)
        assert proxy.calls == {"BatchGetItem": 1, "Query": 1}
        proxy.reset_counts()
        await telemetry.list_readings(DEVICE, from_ms=NOW_MS, to_ms=NOW_MS + 9, limit=1000)
        assert proxy.calls == {"BatchGetItem": 1, "Query": 1}

    async def test_a_cached_key_costs_nothing(
        self, stores: Stores, proxy: FaultProxy, clock: ManualClock
    ) -> None:
        monotonic = ManualClock(0)
        new = await keys_on(stores, clock, monotonic).create(description=None)
        keys = keys_on(stores, clock, monotonic)
        proxy.reset_counts()
        await keys.authenticate(new.api_key)
        assert proxy.calls == {"Query": 1, "GetItem": 1, "UpdateItem": 1}
        proxy.reset_counts()
        for _ in range(10):
            await keys.authenticate(new.api_key)
        assert not proxy.calls


class TestLostAnswers:
    @pytest.mark.parametrize("kind", ["drop", "reset", "throttle", "cancel", "error"])
    async def test_a_fault_that_passes_is_not_noticed(
        self, telemetry: Telemetry, past_faults: Stores, proxy: FaultProxy, kind: str
    ) -> None:
        raw = [raw_reading(n) for n in range(20)]
        proxy.set(**{kind: 1, "times": 15, "only": ["TransactWriteItems"]})
        report = await telemetry.ingest(raw)
        assert proxy.since_reset.injected == {kind: 15}
        assert report == IntakeReport(acknowledged=[each["batch_id"] for each in raw])
        assert await stored(past_faults) == [reading(n) for n in range(20)]

    async def test_a_lost_answer_does_not_make_another_s_reading_ours(
        self, telemetry: Telemetry, past_faults: Stores, proxy: FaultProxy, clock: ManualClock
    ) -> None:
        await service_on(past_faults, clock).ingest([raw_reading(1)])
        proxy.set(drop=1, times=2, only=["TransactWriteItems"])
        report = await telemetry.ingest([raw_reading(1)])
        assert (len(report.acknowledged), len(report.duplicates)) == (0, 1)

    @pytest.mark.parametrize("kind", ["drop", "reset", "throttle"])
    async def test_a_registration_keeps_its_confirmation(
        self, telemetry: Telemetry, proxy: FaultProxy, kind: str
    ) -> None:
        proxy.set(**{kind: 1, "times": 2})
        first = await telemetry.register(registration("AA:BB:CC:DD:EE:77"))
        proxy.set(**{kind: 1, "times": 2})
        assert await telemetry.register(registration("AA:BB:CC:DD:EE:77")) == first

    async def test_a_key_is_made_once_and_opens(
        self, stores: Stores, tables: TelemetryTables, proxy: FaultProxy, clock: ManualClock
    ) -> None:
        keys = keys_on(stores, clock, ManualClock(0))
        proxy.set(drop=1, times=2, only=["PutItem"])
        new = await keys.create(description=None)
        assert len(await items_of(tables, "keys")) == 1
        assert (await keys.authenticate(new.api_key)).key_id == new.key_id

    async def test_fifty_senders_of_the_same_hundred_readings(
        self, tables: TelemetryTables, past_faults: Stores, proxy: FaultProxy
    ) -> None:
        """Answers are lost after the commit, connections reset, calls throttled and transactions
        cancelled, and for a while nothing is answered at all."""
        raw = [raw_reading(n) for n in range(100)]
        async with AsyncExitStack() as stack:
            rushed, *patient = [
                await stack.enter_async_context(door_to(tables, proxy, policy=policy))
                for policy in (RUSHED, PATIENT, PATIENT, PATIENT, PATIENT)
            ]
            services = [service_on(each, ManualClock(NOW)) for each in patient]

            async def send_until_answered(number: int) -> IntakeReport:
                while True:
                    try:
                        return await services[number % 4].ingest(raw[number:] + raw[:number])
                    except UnavailableError:
                        await asyncio.sleep(0.05)

            proxy.set(drop=1, only=["TransactWriteItems"])
            first = service_on(rushed, ManualClock(NOW))
            given_up = await asyncio.gather(
                *(first.ingest(raw[:60]) for _ in range(3)), return_exceptions=True
            )
            assert {type(each) for each in given_up} == {UnavailableError}
            proxy.set(drop=0.03, reset=0.03, throttle=0.03, cancel=0.03)
            reports = await asyncio.wait_for(
                asyncio.gather(*(send_until_answered(n) for n in range(50))), 240
            )
        proxy.calm()
        assert {"drop", "reset", "throttle", "cancel"} <= proxy.total.injected.keys()
        for number, report in enumerate(reports):
            check_accounted(raw[number:] + raw[:number], report)
            assert not report.rejected
        acknowledged = Counter(each for report in reports for each in report.acknowledged)
        assert set(acknowledged.values()) <= {1}
        assert 40 <= len(acknowledged) < 100, "what was given up is nobody's, and all else is"
        assert await stored(past_faults) == [reading(n) for n in range(100)]
        assert await markers(past_faults) == {each["batch_id"] for each in raw}


async def answered(telemetry: Telemetry, raw: list[Any]) -> IntakeReport:
    """What a board gets that sends until it is answered; a busy machine may be slow at first."""
    async with asyncio.timeout(60):
        while True:
            with suppress(UnavailableError):
                return await telemetry.ingest(raw)


@pytest.mark.usefixtures("past_faults")
class TestOutage:
    @pytest.fixture
    async def stores(self, tables: TelemetryTables, proxy: FaultProxy) -> AsyncIterator[Stores]:
        """With little patience, but enough for a busy machine once the outage is over."""
        policy = replace(IMPATIENT, deadline_sec=3, try_sec=2)
        async with door_to(tables, proxy, policy=policy) as stores:
            yield stores

    async def test_a_request_that_fails_gives_its_places_back(
        self, telemetry: Telemetry, proxy: FaultProxy
    ) -> None:
        raw = [raw_reading(n) for n in range(100)]
        proxy.set(throttle=1, only=["TransactWriteItems"])
        with pytest.raises(UnavailableError):
            await telemetry.ingest(raw)
        proxy.calm()
        check_accounted(raw, await answered(telemetry, raw))

    async def test_what_was_given_up_is_a_duplicate_when_it_comes_again(
        self, telemetry: Telemetry, past_faults: Stores, proxy: FaultProxy
    ) -> None:
        raw = [raw_reading(n) for n in range(10)]
        proxy.set(drop=1, only=["TransactWriteItems"])
        with pytest.raises(UnavailableError):
            await telemetry.ingest(raw)
        proxy.calm()
        report = await answered(telemetry, raw)
        check_accounted(raw, report)
        assert not report.rejected
        assert await stored(past_faults) == [reading(n) for n in range(10)]

    async def test_an_outage_is_no_missing_device_and_no_wrong_key(
        self, stores: Stores, telemetry: Telemetry, proxy: FaultProxy, clock: ManualClock
    ) -> None:
        keys = keys_on(stores, clock, ManualClock(0))
        proxy.set(throttle=1)
        outcomes = await asyncio.gather(
            telemetry.ingest([raw_reading(1)]),
            telemetry.get_device(DEVICE),
            telemetry.latest(DEVICE),
            keys.authenticate("0" * 64),
            return_exceptions=True,
        )
        assert [type(each) for each in outcomes] == [UnavailableError] * 4


class TestLaggingIndex:
    LAG_SEC = 1.0

    @pytest.fixture(autouse=True)
    def lag(self, proxy: FaultProxy) -> None:
        proxy.set(index_lag_sec=self.LAG_SEC)

    async def test_a_new_key_is_at_worst_refused_until_the_lag_is_over(
        self, stores: Stores, clock: ManualClock
    ) -> None:
        monotonic = ManualClock(0)
        here, elsewhere = (keys_on(stores, clock, monotonic) for _ in range(2))
        new = await here.create(description=None)
        assert (await here.authenticate(new.api_key)).key_id == new.key_id
        with pytest.raises(InvalidApiKeyError):
            await elsewhere.authenticate(new.api_key)
        await asyncio.sleep(self.LAG_SEC + 0.05)
        assert (await elsewhere.authenticate(new.api_key)).key_id == new.key_id

    async def test_a_revoked_key_stays_refused_while_the_index_shows_it_active(
        self, stores: Stores, clock: ManualClock
    ) -> None:
        monotonic = ManualClock(0)
        here, elsewhere = (keys_on(stores, clock, monotonic) for _ in range(2))
        new = await here.create(description=None)
        await asyncio.sleep(self.LAG_SEC + 0.05)
        assert (await elsewhere.authenticate(new.api_key)).key_id == new.key_id
        await here.revoke(new.key_id)
        assert stores.tables is not None
        [shown], _, _ = await stores.tables.keys.query(
            index="api_key_hash_index",
            condition="api_key_hash = :hash",
            values={"hash": hash_api_key("pepper", new.api_key)},
        )
        assert shown["is_active"], "the index does not lag"
        monotonic.advance(CACHED_SEC)
        for keys in (here, elsewhere, keys_on(stores, clock, monotonic)):
            with pytest.raises(InvalidApiKeyError):
                await keys.authenticate(new.api_key)

    async def test_readings_do_not_wait_for_an_index(self, telemetry: Telemetry) -> None:
        await telemetry.register(registration("AA:BB:CC:DD:EE:77"))
        for number in range(5):
            await telemetry.ingest([raw_reading(number, hardware_id="AA:BB:CC:DD:EE:77")])
            latest = await telemetry.latest("AA:BB:CC:DD:EE:77")
            assert latest.timestamp_ms == NOW_MS + number
