"""Telemetry on DynamoDB: how many calls a request costs."""

import asyncio

from sandyard.telemetry.service import Telemetry
from sandyard.telemetry.stores.dynamo_tables import TelemetryTables
from tests.faults.proxy import FaultProxy
from tests.faults.telemetry.stores import keys_on, stores_through
from tests.support.clocks import ManualClock
from tests.support.telemetry.engines import (
    DEVICE,
    NOW,
    NOW_MS,
    OTHER_DEVICE,
    Stores,
    raw_reading,
    reading,
    service_on,
)


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

    async def test_rejected_readings_cost_no_calls(
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
        async with stores_through(tables, proxy) as stores:
            proxy.gate.clear()
            sending = asyncio.gather(
                *(
                    stores.telemetry.insert_readings(each, devices=devices, now_ms=NOW_MS)
                    for each in portions
                )
            )
            async with asyncio.timeout(30):
                while proxy.in_flight < 64:
                    await asyncio.sleep(0.002)
            await asyncio.sleep(0.2)
            most = proxy.in_flight
            proxy.gate.set()
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
