"""Real engines for simulated servers: an empty database or table for each run."""

import asyncio
import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from uuid import uuid4

from sandyard.broker.stores.sql import MIGRATIONS as BROKER
from sandyard.kit.sql.migrations import Migrations
from sandyard.platform.schema.migrations import MIGRATIONS as PLATFORM
from sandyard.previews.stores.schema import MIGRATIONS as PREVIEWS
from tests.simulation.broker import PoolOnSql
from tests.simulation.engine import SqlEngine
from tests.simulation.loop import EngineTimeLoop
from tests.simulation.parts import Outcome
from tests.simulation.platform_run import simulate_platform
from tests.simulation.previews import Kind
from tests.simulation.previews_run import simulate_previews
from tests.simulation.real_engines import DynamoServer, PostgresServer, SqliteFile
from tests.simulation.run import settings, simulate
from tests.simulation.schedule import Schedule
from tests.support.storage.engines import (
    create_migrated,
    drop_databases,
    dynamo_server,
    pool_table,
    postgres_folder,
    postgres_server,
    write_migrated,
)

ENGINES = ("sqlite", "postgresql", "dynamodb")


@dataclass(frozen=True, slots=True)
class Servers:
    """Those that run, by URL; SQLite has a folder."""

    engine: str
    address: str

    def simulate(self, part: str, schedule: Schedule) -> Outcome:
        with self._empty(part, schedule.seed) as simulate_on_it:
            return simulate_on_it(schedule)

    @contextmanager
    def _empty(self, part: str, seed: int) -> Iterator[Callable[[Schedule], Outcome]]:
        if self.engine == "dynamodb":
            table = f"Pool-{uuid4().hex[:12]}"
            asyncio.run(_create_table(self.address, table))
            server = DynamoServer(self.address, table, settings(), seed)
            yield partial(simulate, engine=server, loop=EngineTimeLoop)
            return
        with self._empty_database(_MIGRATIONS[part], seed) as engine:
            yield partial(_ON_SQL[part], engine)

    @contextmanager
    def _empty_database(self, migrations: Migrations, seed: int) -> Iterator[SqlEngine]:
        if self.engine == "postgresql":
            url = asyncio.run(create_migrated(self.address, migrations))
            try:
                yield PostgresServer(url, seed)
            finally:
                asyncio.run(drop_databases())
        else:
            with tempfile.TemporaryDirectory(dir=self.address) as folder:
                file = Path(folder) / f"{migrations.part}.db"
                asyncio.run(write_migrated(file, migrations))
                yield SqliteFile(file, schema=migrations.part)


@contextmanager
def servers(engine: str) -> Iterator[Servers]:
    with ExitStack() as stack:
        match engine:
            case "postgresql":
                folder = stack.enter_context(postgres_folder())
                address = stack.enter_context(postgres_server(folder / "data"))
            case "dynamodb":
                address = stack.enter_context(dynamo_server())
            case _:
                address = stack.enter_context(tempfile.TemporaryDirectory())
        yield Servers(engine, address)


async def _create_table(url: str, table: str) -> None:
    async with pool_table(url, name=table):
        pass


def _broker(engine: SqlEngine, schedule: Schedule) -> Outcome:
    return simulate(schedule, PoolOnSql(engine), EngineTimeLoop)


def _platform(engine: SqlEngine, schedule: Schedule) -> Outcome:
    return simulate_platform(schedule, engine, EngineTimeLoop)


def _previews(engine: SqlEngine, schedule: Schedule) -> Outcome:
    kind: Kind = "local" if schedule.seed % 2 else "cloud"
    return simulate_previews(schedule, kind, engine, EngineTimeLoop)


_ON_SQL: Mapping[str, Callable[[SqlEngine, Schedule], Outcome]] = {
    "broker": _broker,
    "platform": _platform,
    "previews": _previews,
}
_MIGRATIONS = {"broker": BROKER, "platform": PLATFORM, "previews": PREVIEWS}
