"""Real engines in virtual time, behind the same network as the simulated ones: nobody waits for a
fault, and time stands still while an engine works."""

import asyncio
import random
from collections.abc import Awaitable, Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar, cast

import aiohttp
import asyncpg
import httpx
import orjson
import sqlalchemy as sa
from aiodynamo.credentials import Key, StaticCredentials
from aiodynamo.http.aiohttp import AIOHTTP
from aiodynamo.http.types import Request, RequestFailed, Response

from sandyard.broker.stores.dynamo_table import PoolTable, TableNames
from sandyard.broker.wiring.pool import Pool, dynamo_pool
from sandyard.kit.clock import Clock
from sandyard.kit.dynamo.client import Dynamo, DynamoPolicy
from sandyard.kit.sql.database import Database, PostgresDatabase, SqliteDatabase, Work
from sandyard.settings import Settings
from tests.faults.index_lag import WRITES, IndexHistory, Wire
from tests.faults.proxy import conflict, refusal
from tests.simulation.loop import EngineTimeLoop, Process
from tests.simulation.network import Network, unavailable

T = TypeVar("T")
R = TypeVar("R")

_POOL_SIZE = 4
_CUT = 0.1
"""A connection breaks in the midst of what it does so often, beside a lost answer."""
_POLICY = DynamoPolicy(
    try_sec=5.5,  # a timer of less may end although the machine is only busy
    circuit_threshold=1000,  # an open circuit counts in real time
)
_CREDENTIALS = StaticCredentials(Key("local", "local"))


@contextmanager
def at_work() -> Iterator[None]:
    loop = asyncio.get_running_loop()
    assert isinstance(loop, EngineTimeLoop)
    with loop.engine_at_work():
        yield


class RemoteDatabase:
    """One server's connections to a real engine."""

    folder = None

    def __init__(
        self,
        database: Database,
        network: Network,
        process: Process,
        break_one: Callable[[], None] = lambda: None,
    ) -> None:
        """`break_one` is called as a call begins."""
        self.name = database.name
        self.concurrent_writers = database.concurrent_writers
        self._database = database
        self._network = network
        self._process = process
        self._break_one = break_one
        self._is_closed = False
        process.at_death.append(self.close)

    async def read(self, work: Work[T]) -> T:
        return await self._call(lambda: self._database.read(work))

    async def write(self, work: Work[T]) -> T:
        return await self._call(lambda: self._database.write(work))

    async def run_statement(self, work: Work[T]) -> T:
        return await self._call(lambda: self._database.run_statement(work))

    async def hold(self, work: Work[T], then: Callable[[T], Awaitable[R]]) -> R:
        """Time goes on meanwhile: `then` may take some."""
        await self._network.send(self._process, lost=unavailable)
        self._break_one()
        result = await self._database.hold(work, then)
        await self._network.answer(self._process, lost=unavailable)
        return result

    async def check(self) -> None:
        await self._call(self._database.check)

    async def erase_deleted(self) -> None:
        pass

    async def close(self) -> None:
        """More often than once: when its process ends, and when the run does."""
        if not self._is_closed:
            self._is_closed = True
            with at_work():
                await self._database.close()

    async def _call(self, work: Callable[[], Awaitable[T]]) -> T:
        await self._network.send(self._process, lost=unavailable)
        self._break_one()
        with at_work():
            result = await work()
        await self._network.answer(self._process, lost=unavailable)
        return result


class SqliteFile:
    """One file, of which each server has its own threads and connections."""

    def __init__(self, file: Path, *, schema: str) -> None:
        self._file = file
        self._schema = schema
        self._opened: list[RemoteDatabase] = []

    def connect(self, network: Network, process: Process) -> Database:
        database = SqliteDatabase(self._file, schema=self._schema)
        self._opened.append(RemoteDatabase(database, network, process))
        return self._opened[-1]

    async def close(self) -> None:
        for each in self._opened:
            await each.close()


class PostgresServer:
    """One database of it, whose connections break now and then in the midst of what they do."""

    def __init__(self, url: str, seed: int) -> None:
        self._url = sa.make_url(url)
        self._rng = random.Random(f"{seed}:cuts")
        self._opened: list[RemoteDatabase] = []

    def connect(self, network: Network, process: Process) -> Database:
        connections = _Connections(self._rng, network)
        database = PostgresDatabase(self._url, pool_size=_POOL_SIZE, connect=connections.open)
        remote = RemoteDatabase(database, network, process, connections.break_one)
        self._opened.append(remote)
        return remote

    async def close(self) -> None:
        for each in self._opened:
            await each.close()


class _Connections:
    """Of one server; any of them may break within the next steps of the loop."""

    def __init__(self, rng: random.Random, network: Network) -> None:
        self._rng = rng
        self._network = network
        self._opened: list[asyncpg.Connection] = []

    async def open(self, *arguments: Any, **options: Any) -> Any:
        connection = await asyncpg.connect(*arguments, **options)
        self._opened.append(connection)
        return connection

    def break_one(self) -> None:
        self._opened = [each for each in self._opened if not each.is_closed()]
        if self._opened and self._rng.random() < self._network.faults.answer_lost * _CUT:
            self._network.happened["cut"] += 1
            self._break_later(self._rng.choice(self._opened), self._rng.randint(0, 12))

    def _break_later(self, connection: "asyncpg.Connection", steps: int) -> None:
        if steps:
            asyncio.get_running_loop().call_soon(self._break_later, connection, steps - 1)
        elif not connection.is_closed():
            connection.terminate()


class DynamoServer:
    """One table of it, whose indexes lag. As between two computers, each call of the client's may
    be lost, which the client itself repeats."""

    def __init__(self, url: str, table: str, settings: Settings, seed: int) -> None:
        self._url = url
        self._names = TableNames(table=table)
        self._settings = settings
        self._indexes = IndexHistory()
        self._lag_sec = random.Random(f"{seed}:lag").choice([0, 0, 1, 3])
        self._opened: list[Dynamo] = []

    def pool(self, network: Network, process: Process, clock: Clock) -> Pool:
        http = FaultyHttp(aiohttp.ClientSession(), network, process, self._indexes, self._lag_sec)
        engine = Dynamo(
            region="us-east-1",
            endpoint_url=self._url,
            policy=_POLICY,
            credentials=_CREDENTIALS,
            http=http,
        )
        self._opened.append(engine)
        process.at_death.append(engine.close)
        return dynamo_pool(PoolTable(engine, self._names), self._settings, clock)

    async def close(self) -> None:
        for each in self._opened:
            await each.close()


@dataclass(frozen=True)
class FaultyHttp(AIOHTTP):
    network: Network
    process: Process
    indexes: IndexHistory
    lag_sec: float

    async def __call__(self, request: Request) -> Response:
        assert request.headers is not None
        action = request.headers["X-Amz-Target"].partition(".")[2]
        try:
            await self.network.send(self.process, lost=_LostError)
            response = await self._pass_on(request, action)
            await self.network.answer(self.process, lost=_LostError)
        except _LostError as lost:
            if lost.reason != "throttled":
                raise RequestFailed(TimeoutError(lost.reason)) from lost
            return _refused(request, action)
        return response

    async def _pass_on(self, request: Request, action: str) -> Response:
        async def ask(asked: str, payload: Mapping[str, Any]) -> Wire:
            answer = await self._post(request, asked, orjson.dumps(payload))
            assert answer.status == httpx.codes.OK, answer.body
            return cast("Wire", orjson.loads(answer.body))

        assert request.body is not None
        if self.lag_sec and action in WRITES:
            payload = orjson.loads(request.body)
            async with self.indexes.recording(action, payload, ask) as nothing_changed:
                answer = await self._post(request, action, request.body)
                if answer.status != httpx.codes.OK:
                    nothing_changed()
                return answer
        if self.lag_sec and action == "Query":
            payload = orjson.loads(request.body)
            if "IndexName" in payload:
                found = await self.indexes.query(payload, ask, lag_sec=self.lag_sec)
                return Response(httpx.codes.OK, orjson.dumps(found))
        return await self._post(request, action, request.body)

    async def _post(self, request: Request, action: str, body: bytes) -> Response:
        headers = {**(request.headers or {}), "X-Amz-Target": f"DynamoDB_20120810.{action}"}
        with at_work():
            async with self.session.post(request.url, headers=headers, data=body) as response:
                return Response(response.status, await response.read())


class _LostError(Exception):
    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason


def _refused(request: Request, action: str) -> Response:
    """Throttled; or, of a transaction, cancelled because of another."""
    answer = refusal(400, "ThrottlingException", "slow down")
    if action == "TransactWriteItems" and request.body:
        answer = conflict(len(orjson.loads(request.body)["TransactItems"]))
    assert isinstance(answer.body, bytes)
    return Response(answer.status, answer.body)
