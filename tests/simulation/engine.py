"""SQLite in memory, without threads: the real statements of the store adapters, one transaction
after another, behind a network."""

import asyncio
import random
import sqlite3
from collections.abc import Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from pathlib import Path
from typing import Any, Protocol, TypeVar

import sqlalchemy as sa
from sqlalchemy import exc

from sandyard.kit.sql.database import Database, Work, raise_unavailable
from sandyard.kit.sql.migrations import Migrations
from sandyard.kit.sql.sqlite_engine import WITHOUT_TRANSACTION, sqlite_engine
from tests.simulation.loop import Process
from tests.simulation.network import Network, unavailable

T = TypeVar("T")
R = TypeVar("R")


class SqlEngine(Protocol):
    """What all servers of a part share, and what outlives them."""

    def connect(self, network: Network, process: Process) -> Database:
        """One server's connections to it, which end with its process."""
        ...

    async def close(self) -> None: ...


class SharedSqlite:
    """In memory, one transaction after another."""

    def __init__(self, schema: str) -> None:
        self._schema = schema
        self.engine = sqlite_engine(Path(":memory:"), schema, begin="BEGIN", readers=0)
        self.alone = self.engine.execution_options(**WITHOUT_TRANSACTION)

    @classmethod
    def migrated(cls, migrations: Migrations) -> "SharedSqlite":
        """An empty one at the newest schema."""
        shared = cls(migrations.part)
        shared.fill(_migrated(migrations))
        return shared

    def connect(self, network: Network, process: Process) -> "SimulatedDatabase":
        return SimulatedDatabase(self, network, process)

    async def close(self) -> None:
        self.engine.dispose()

    def content(self) -> bytes:
        return self._driver().serialize(name=self._schema)

    def fill(self, content: bytes) -> None:
        self._driver().deserialize(content, name=self._schema)

    def _driver(self) -> sqlite3.Connection:
        with self.engine.connect() as connection:
            driver = connection.connection.driver_connection
        assert isinstance(driver, sqlite3.Connection)
        return driver

    def run(self, engine: sa.Engine, work: Work[T]) -> T:
        try:
            with engine.begin() if engine is self.engine else engine.connect() as connection:
                return work(connection)
        except exc.DBAPIError as error:
            raise_unavailable(error, "sqlite")


@cache
def _migrated(migrations: Migrations) -> bytes:
    """A database at the newest schema, to be copied: to migrate takes longer than a short run."""
    shared = SharedSqlite(migrations.part)
    database = SimulatedDatabase(shared, Network(random.Random(0)), Process())
    with ThreadPoolExecutor(1) as apart:  # where no loop is running
        apart.submit(lambda: asyncio.run(migrations.upgrade(database))).result()
    return shared.content()


class SimulatedDatabase:
    """One replica's connection to it."""

    name = "sqlite"
    concurrent_writers = False
    folder = None

    def __init__(self, shared: SharedSqlite, network: Network, process: Process) -> None:
        self._shared = shared
        self._network = network
        self._process = process

    async def read(self, work: Work[T]) -> T:
        return await self._call(self._shared.engine, work)

    async def write(self, work: Work[T]) -> T:
        return await self._call(self._shared.engine, work)

    async def run_statement(self, work: Work[T]) -> T:
        return await self._call(self._shared.alone, work)

    async def hold(self, work: Work[T], then: Callable[[T], Awaitable[R]]) -> R:
        return await then(await self.read(work))

    async def check(self) -> None:
        await self.read(_nothing)

    async def erase_deleted(self) -> None:
        pass

    async def close(self) -> None:
        pass

    async def _call(self, engine: sa.Engine, work: Work[T]) -> T:
        return await self._network.call(
            self._process, lambda: self._shared.run(engine, work), lost=unavailable
        )


def _nothing(_connection: sa.Connection) -> Any:
    return None
