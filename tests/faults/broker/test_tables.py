"""Tables that others made, and engines that are not what the settings say."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from uuid import uuid4

import pytest
from aiodynamo.credentials import Key, StaticCredentials

from sandyard.broker.pool.model import Claim, Status
from sandyard.broker.stores.dynamo_table import PoolTable, TableNames, definition
from sandyard.broker.stores.dynamodb import DynamoPoolStore
from sandyard.kit.clock import SystemClock
from sandyard.kit.dynamo.client import Dynamo, DynamoPolicy, TableMissingError
from sandyard.kit.dynamo.tables import TableUnfitError
from sandyard.kit.errors import UnavailableError
from sandyard.kit.free_ports import free_port
from tests.faults.stores import IMPATIENT
from tests.support.broker.pools import NOW


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


def store_on(pool: PoolTable) -> DynamoPoolStore:
    return DynamoPoolStore(pool, clock=SystemClock(), prefetch_size=15)


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

    async def test_a_table_that_another_program_filled_is_refused(self, engine: Dynamo) -> None:
        pool = PoolTable(engine, TableNames(table=f"Pool-{uuid4().hex[:12]}"))
        await engine.call("CreateTable", definition(pool.names))
        row = {"PK": "SBX#s1", "SK": "META", "status": Status.AVAILABLE, "allocated_at": 0}
        await pool.table.put(row)
        with pytest.raises(TableUnfitError, match="filled by another program"):
            await pool.check()

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
