"""Tables that others filled, and engines that are not what the settings say."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from uuid import uuid4

import pytest
from aiodynamo.credentials import Key, StaticCredentials
from prometheus_client import CollectorRegistry

from sandyard.broker.metrics import BrokerMetrics
from sandyard.broker.pool.model import Action, Claim, Claimed, Sandbox, Status
from sandyard.broker.pool.service import Broker
from sandyard.broker.pool.stores.dynamo_items import lease_key
from sandyard.broker.stores.dynamo_adoption import adopt
from sandyard.broker.stores.dynamo_table import PoolTable, TableNames, definition
from sandyard.broker.stores.dynamodb import DynamoPoolStore
from sandyard.broker.verification import verify
from sandyard.kit.clock import SystemClock
from sandyard.kit.dynamo.client import Dynamo, DynamoPolicy, TableMissingError
from sandyard.kit.dynamo.tables import TableUnfitError
from sandyard.kit.dynamo.values import Item
from sandyard.kit.errors import UnavailableError
from sandyard.kit.free_ports import free_port
from tests.faults.stores import IMPATIENT
from tests.support.broker.pools import LAB_SEC, NOW, check_history, row
from tests.support.clocks import ManualClock


def item(number: int, status: Status, *, track: str | None = None, at: int = NOW) -> Item:
    """A row as the other program writes it."""
    return {
        "PK": f"SBX#s{number}",
        "SK": "META",
        "sandbox_id": f"s{number}",
        "name": f"test-sandbox-{number}",
        "external_id": f"ext-{number}",
        "status": status,
        "lab_duration_hours": 4,
        "deletion_retry_count": 0,
        "allocated_at": at if track else 0,
        "created_at": NOW - 60,
        "updated_at": NOW,
        "allocated_to_track": track,
        "idempotency_key": track,
        "last_synced": NOW - 60,
    }


@asynccontextmanager
async def engine_at(
    url: str, *, policy: DynamoPolicy = IMPATIENT, key: Key | None = Key("local", "local")
) -> AsyncIterator[Dynamo]:
    engine = Dynamo(
        region="us-east-1", endpoint_url=url, policy=policy, credentials=StaticCredentials(key)
    )
    try:
        yield engine
    finally:
        await engine.close()


@pytest.fixture
async def engine(dynamo_url: str) -> AsyncIterator[Dynamo]:
    async with engine_at(dynamo_url) as engine:
        yield engine


@pytest.fixture
async def foreign(engine: Dynamo) -> PoolTable:
    """A table of the same layout with three allocations, one of them doubled, and free rows."""
    pool = PoolTable(engine, TableNames(table=f"Pool-{uuid4().hex[:12]}"))
    await engine.call("CreateTable", definition(pool.names))
    for number in range(20):
        await pool.table.put(item(number, Status.AVAILABLE))
    for number, track, at in (
        (20, "a", NOW),
        (21, "b", NOW - 9),
        (22, "c", NOW),
        (23, "c", NOW - 5),
    ):
        await pool.table.put(item(number, Status.ALLOCATED, track=track, at=at))
    await pool.table.put(item(24, Status.PENDING_DELETION, track="d"))
    return pool


def store_on(pool: PoolTable) -> DynamoPoolStore:
    return DynamoPoolStore(pool, clock=SystemClock(), prefetch_size=15)


class TestAdoption:
    async def test_a_foreign_table_is_refused_until_adopted(self, foreign: PoolTable) -> None:
        with pytest.raises(TableUnfitError, match="sandyard tables adopt"):
            await foreign.check()
        with pytest.raises(TableUnfitError, match="sandyard tables adopt"):
            await store_on(foreign).check()
        await adopt(foreign, clock=SystemClock())
        await foreign.check()
        await store_on(foreign).check()

    async def test_running_allocations_get_their_leases(self, foreign: PoolTable) -> None:
        report = await adopt(foreign, clock=SystemClock())
        assert (report.allocations, report.leases_added, report.already_there) == (4, 3, 0)
        store = store_on(foreign)
        for track, sandbox_id, at in (("a", "s20", NOW), ("b", "s21", NOW - 9), ("c", "s22", NOW)):
            repeat = await store.claim(Claim(track, track, NOW))
            assert repeat is not None
            assert not repeat.is_new
            assert (repeat.lease.sandbox_id, repeat.lease.allocated_at) == (sandbox_id, at)
            assert repeat.lease.expires_at == at + LAB_SEC
        fresh = await store.claim(Claim("d", "d", NOW))
        assert fresh is not None
        assert fresh.is_new

    async def test_the_older_of_two_for_one_key_is_reported(self, foreign: PoolTable) -> None:
        assert (await adopt(foreign, clock=SystemClock())).duplicates == ["s23"]

    async def test_a_second_time_changes_nothing(self, foreign: PoolTable) -> None:
        await adopt(foreign, clock=SystemClock())
        before = [await foreign.table.get(lease_key(t, t)) for t in "abc"]
        again = await adopt(foreign, clock=SystemClock())
        assert (again.leases_added, again.already_there, again.duplicates) == (0, 3, ["s23"])
        assert [await foreign.table.get(lease_key(t, t)) for t in "abc"] == before

    async def test_rows_get_a_sequence_and_a_baseline_once(self, foreign: PoolTable) -> None:
        report = await adopt(foreign, clock=SystemClock())
        assert report.baselines_added == 25
        await check_history(store_on(foreign))
        told = [each.message for each in (await verify(store_on(foreign))).problems]
        assert not any("events" in each for each in told), told
        assert (await adopt(foreign, clock=SystemClock())).baselines_added == 0
        await check_history(store_on(foreign))

    async def test_a_table_of_an_earlier_version_is_refused_until_adopted(
        self, foreign: PoolTable
    ) -> None:
        await foreign.table.put({"PK": "LAYOUT", "SK": "META", "version": 1})
        with pytest.raises(TableUnfitError, match=r"layout 1.*sandyard tables adopt"):
            await foreign.check()
        await adopt(foreign, clock=SystemClock())
        await foreign.check()
        layout = await foreign.table.get({"PK": "LAYOUT", "SK": "META"})
        assert layout is not None
        assert layout["version"] == 1, "a server of 0.1.0 does not start on another"

    async def test_claims_may_run_meanwhile(self, foreign: PoolTable) -> None:
        await foreign.create_events()
        store = store_on(foreign)

        async def claim_new() -> list[Claimed | None]:
            return [await store.claim(Claim(f"new{n}", f"new{n}", NOW)) for n in range(15)]

        claims, first, second = await asyncio.gather(
            claim_new(),
            adopt(foreign, clock=SystemClock()),
            adopt(foreign, clock=SystemClock()),
        )
        assert None not in claims
        assert first.leases_added + second.leases_added == 3
        again = await claim_new()
        leases = [claim.lease for claim in claims if claim]
        assert [claim.lease for claim in again if claim] == leases
        assert (await adopt(foreign, clock=SystemClock())).leases_added == 0

    async def test_a_track_gives_its_adopted_sandbox_up(
        self, foreign: PoolTable, clock: ManualClock
    ) -> None:
        await adopt(foreign, clock=SystemClock())
        store = store_on(foreign)
        broker = Broker(store, clock=clock, metrics=BrokerMetrics(CollectorRegistry()))
        await broker.mark_for_deletion(track_id="a", sandbox_id="s20")
        assert await foreign.table.get(lease_key("a", "a")) is None

    async def test_a_reported_duplicate_can_be_given_up_too(
        self, foreign: PoolTable, clock: ManualClock
    ) -> None:
        await adopt(foreign, clock=SystemClock())
        store = store_on(foreign)
        broker = Broker(store, clock=clock, metrics=BrokerMetrics(CollectorRegistry()))
        released = await broker.act(Action.RELEASE, sandbox_id="s23")
        assert released.status is Status.PENDING_DELETION
        kept: Sandbox = await row(store, "s22")
        assert kept.status is Status.ALLOCATED
        lease = await foreign.table.get(lease_key("c", "c"))
        assert lease is not None
        assert lease["sandbox_id"] == "s22"


class TestMisconfiguration:
    async def test_a_missing_table_is_named(self, engine: Dynamo) -> None:
        pool = PoolTable(engine, TableNames(table="Nowhere"))
        with pytest.raises(TableMissingError, match="sandyard tables create"):
            await pool.check()
        with pytest.raises(TableMissingError):
            await store_on(pool).claim(Claim("track", "track", NOW))

    async def test_it_stays_named_however_often_it_is_missed(self, dynamo_url: str) -> None:
        async with engine_at(dynamo_url, policy=DynamoPolicy()) as engine:
            store = store_on(PoolTable(engine, TableNames(table="Nowhere")))
            for _ in range(8):
                with pytest.raises(TableMissingError, match="sandyard tables create"):
                    await store.find("s1")

    async def test_other_keys_are_refused(self, engine: Dynamo) -> None:
        names = TableNames(table=f"Pool-{uuid4().hex[:12]}")
        other = definition(names) | {
            "KeySchema": [{"AttributeName": "PK", "KeyType": "HASH"}],
            "AttributeDefinitions": [
                each
                for each in definition(names)["AttributeDefinitions"]
                if each["AttributeName"] != "SK"
            ],
        }
        await engine.call("CreateTable", other)
        with pytest.raises(TableUnfitError, match="key PK and SK"):
            await PoolTable(engine, names).check()

    async def test_a_missing_index_is_named(self, engine: Dynamo) -> None:
        names = TableNames(table=f"Pool-{uuid4().hex[:12]}")
        await engine.call("CreateTable", definition(names))
        wanted = TableNames(table=names.table, status_index="ByStatus")
        with pytest.raises(TableUnfitError, match="index ByStatus"):
            await PoolTable(engine, wanted).check()

    async def test_without_credentials_it_says_what_to_set(self, dynamo_url: str) -> None:
        async with engine_at(dynamo_url, key=None) as engine:
            with pytest.raises(UnavailableError, match="AWS_ACCESS_KEY_ID"):
                await store_on(PoolTable(engine, TableNames())).find("s1")

    @pytest.mark.parametrize("status", ["200 OK", "404 Not Found"])
    async def test_an_endpoint_that_is_not_dynamodb_is_recognised(self, status: str) -> None:
        async with web_page(status) as url, engine_at(url) as engine:
            for call in (_find, _claim, _check):
                with pytest.raises(UnavailableError, match="DDB_ENDPOINT_URL"):
                    await call(PoolTable(engine, TableNames()))

    async def test_nobody_at_the_endpoint_is_an_outage(self) -> None:
        async with engine_at(f"http://127.0.0.1:{free_port()}") as engine:
            for call in (_find, _claim, _check):
                with pytest.raises(UnavailableError, match="does not respond") as caught:
                    await call(PoolTable(engine, TableNames()))
                reason = str(caught.value.reason)
                assert "Connect" in reason or "deadline passed" in reason  # the last of its tries


@asynccontextmanager
async def web_page(status: str) -> AsyncIterator[str]:
    """A server that answers everything with a page for people; gives its URL."""

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = await reader.readuntil(b"\r\n\r\n")
        length = next(line for line in head.lower().split(b"\r\n") if b"content-length" in line)
        await reader.readexactly(int(length.split(b":")[1]))
        page = "<html>Welcome</html>"
        writer.write(
            f"HTTP/1.1 {status}\r\nContent-Length: {len(page)}\r\n"
            f"Connection: close\r\n\r\n{page}".encode()
        )
        await writer.drain()
        writer.close()

    server = await asyncio.start_server(answer, "127.0.0.1", 0)
    async with server:
        yield f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"


async def _find(pool: PoolTable) -> None:
    await store_on(pool).find("s1")


async def _claim(pool: PoolTable) -> None:
    await store_on(pool).claim(Claim("track", "track", NOW))


async def _check(pool: PoolTable) -> None:
    await store_on(pool).check()
