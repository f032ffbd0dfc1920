"""Telemetry on DynamoDB: lost answers, outages and an index that lags."""

import asyncio
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from dataclasses import replace

import pytest

from sandyard.kit.errors import UnavailableError
from sandyard.telemetry.errors import InvalidApiKeyError
from sandyard.telemetry.keys import CACHED_SEC
from sandyard.telemetry.model import IntakeReport, hash_api_key
from sandyard.telemetry.service import Telemetry
from sandyard.telemetry.stores.dynamo_tables import TelemetryTables
from tests.faults.proxy import FaultProxy
from tests.faults.stores import IMPATIENT
from tests.faults.telemetry.stores import RUSHED, answered, keys_on, stores_through
from tests.support.clocks import ManualClock
from tests.support.storage.engines import PATIENT
from tests.support.telemetry.engines import (
    DEVICE,
    NOW,
    NOW_MS,
    Stores,
    check_accounted,
    items_of,
    markers,
    raw_reading,
    reading,
    registration,
    service_on,
    stored,
)


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
        first = await telemetry.register(registration("AA:BB:CC:DD:EE:77"), key_id="test")
        proxy.set(**{kind: 1, "times": 2})
        assert await telemetry.register(registration("AA:BB:CC:DD:EE:77"), key_id="test") == first

    async def test_a_key_is_made_once_and_opens(
        self, stores: Stores, tables: TelemetryTables, proxy: FaultProxy, clock: ManualClock
    ) -> None:
        keys = keys_on(stores, clock, ManualClock(0))
        proxy.set(drop=1, times=2, only=["PutItem"])
        new = await keys.create(description=None)
        assert len(await items_of(tables, "keys")) == 1
        assert (await keys.authenticate(new.api_key)).key_id == new.key_id

    @pytest.mark.timeout(600)
    async def test_fifty_senders_of_the_same_hundred_readings(
        self, tables: TelemetryTables, past_faults: Stores, proxy: FaultProxy
    ) -> None:
        """Answers are lost after the commit, connections reset, calls throttled and transactions
        cancelled, and for a while nothing is answered at all."""
        raw = [raw_reading(n) for n in range(100)]
        async with AsyncExitStack() as stack:
            rushed, *patient = [
                await stack.enter_async_context(stores_through(tables, proxy, policy=policy))
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
            while not await markers(past_faults):  # on a busy machine none may get as far
                given_up = await asyncio.gather(
                    *(first.ingest(raw[:60]) for _ in range(3)), return_exceptions=True
                )
                assert {type(each) for each in given_up} == {UnavailableError}
            proxy.set(drop=0.03, reset=0.03, throttle=0.03, cancel=0.03)
            reports = await asyncio.gather(*(send_until_answered(n) for n in range(50)))
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


@pytest.mark.usefixtures("past_faults")
class TestOutage:
    @pytest.fixture
    async def stores(self, tables: TelemetryTables, proxy: FaultProxy) -> AsyncIterator[Stores]:
        """With little patience, but enough for a busy machine once the outage is over."""
        policy = replace(IMPATIENT, deadline_sec=3, try_sec=2)
        async with stores_through(tables, proxy, policy=policy) as stores:
            yield stores

    async def test_a_failed_request_releases_its_slots(
        self, telemetry: Telemetry, proxy: FaultProxy
    ) -> None:
        raw = [raw_reading(n) for n in range(100)]
        proxy.set(throttle=1, only=["TransactWriteItems"])
        with pytest.raises(UnavailableError):
            await telemetry.ingest(raw)
        proxy.calm()
        check_accounted(raw, await answered(telemetry, raw))

    async def test_a_reading_stored_before_a_timeout_is_a_duplicate_when_sent_again(
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
    LAG_SEC = 600.0
    """Longer than any test; it is over when a test says so."""

    @pytest.fixture(autouse=True)
    def lag(self, proxy: FaultProxy) -> None:
        proxy.set(index_lag_sec=self.LAG_SEC)

    async def test_a_new_key_is_at_worst_refused_until_the_lag_is_over(
        self, stores: Stores, clock: ManualClock, proxy: FaultProxy
    ) -> None:
        monotonic = ManualClock(0)
        here, elsewhere = (keys_on(stores, clock, monotonic) for _ in range(2))
        new = await here.create(description=None)
        assert (await here.authenticate(new.api_key)).key_id == new.key_id
        with pytest.raises(InvalidApiKeyError):
            await elsewhere.authenticate(new.api_key)
        proxy.set(index_lag_sec=0)
        assert (await elsewhere.authenticate(new.api_key)).key_id == new.key_id

    async def test_a_revoked_key_stays_refused_while_the_index_shows_it_active(
        self, stores: Stores, clock: ManualClock, proxy: FaultProxy
    ) -> None:
        monotonic = ManualClock(0)
        here, elsewhere = (keys_on(stores, clock, monotonic) for _ in range(2))
        proxy.set(index_lag_sec=0)
        new = await here.create(description=None)
        assert (await elsewhere.authenticate(new.api_key)).key_id == new.key_id
        proxy.set(index_lag_sec=self.LAG_SEC)
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
        await telemetry.register(registration("AA:BB:CC:DD:EE:77"), key_id="test")
        for number in range(5):
            await telemetry.ingest([raw_reading(number, hardware_id="AA:BB:CC:DD:EE:77")])
            latest = await telemetry.latest("AA:BB:CC:DD:EE:77")
            assert latest.timestamp_ms == NOW_MS + number
