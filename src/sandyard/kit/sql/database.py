"""One interface to SQLite and PostgreSQL.

A unit of work is a plain function of a SQLAlchemy connection. `Database.write` runs it in a
transaction and returns only after the commit; `Database.read` runs it on a connection that never
blocks a writer. The same function serves both engines: SQLite calls it in a thread, PostgreSQL
inside SQLAlchemy's asyncio bridge.
"""

import asyncio
import socket
import sqlite3
from collections.abc import Awaitable, Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path
from typing import Any, NoReturn, Protocol, TypeVar

import sqlalchemy as sa
from sqlalchemy import exc
from sqlalchemy.util import greenlet_spawn

from sandyard.kit.concurrency.batching import Batcher
from sandyard.kit.errors import UnavailableError
from sandyard.kit.sql.batches import run_in_driver
from sandyard.kit.sql.postgres_login import PostgresLogin
from sandyard.kit.sql.sqlite_engine import WITHOUT_TRANSACTION, sqlite_engine

T = TypeVar("T")
R = TypeVar("R")
Work = Callable[[sa.Connection], T]


_FULL = "can't write: its disk is full. Nothing was changed; free some space"
_LOGIN = "refuses the login. Correct the user and password (DATABASE_URL, DATABASE_PASSWORD)"
_NO_TABLES = "lacks tables of this release. Run `sandyard db upgrade`"
_NOBODY_LISTENS = (
    "can't be reached: nothing listens there. Start it, or correct host and port in DATABASE_URL"
)
_TROUBLE = {
    sqlite3.SQLITE_FULL: _FULL,
    "53100": _FULL,
    sqlite3.SQLITE_READONLY: "can't write: its file or file system is read-only",
    "25006": "can't write: it is read-only",
    "SYMOV": "can't write: its data was moved to another engine, or is about to be",
    sqlite3.SQLITE_IOERR: "can't use its file: the disk or file system fails",
    "28P01": _LOGIN,
    "28000": _LOGIN,
    "3D000": "has no such database. Create it, or correct the name in DATABASE_URL",
    "3F000": _NO_TABLES,
    "42P01": _NO_TABLES,
    "42501": "does not permit this to the user of DATABASE_URL. Grant the privilege",
    "53300": "has no free connection. Raise its limit, or lower DATABASE_POOL_SIZE",
}
"""Problems that an operator can fix, by engine error code."""
_UNREACHABLE: Mapping[type[BaseException], str] = {
    socket.gaierror: "can't be found: its host name is unknown. Correct it in DATABASE_URL",
    ConnectionRefusedError: _NOBODY_LISTENS,
    FileNotFoundError: _NOBODY_LISTENS,
}


class Database(Protocol):
    """An engine with durable transactions. Every method raises UnavailableError when it is down."""

    name: str
    concurrent_writers: bool

    @property
    def folder(self) -> Path | None:
        """The directory of its files; None if they are not on this machine."""

    async def read(self, work: Work[T]) -> T:
        """Run `work` on a consistent snapshot; never blocks a writer, never waits for one."""

    async def write(self, work: Work[T]) -> T:
        """Run `work` in a transaction; it is durable before this returns.

        `work` may be run again after a deadlock, so it must have no effects outside the connection.
        """

    async def run_statement(self, work: Work[T]) -> T:
        """Run `work`, a single statement and thus its own transaction; it is durable before this
        returns. On PostgreSQL that is one round trip; `write` takes two more."""

    async def hold(self, work: Work[T], then: Callable[[T], Awaitable[R]]) -> R:
        """Run `work`, then `then` with its result before the transaction ends, so that rows stay
        locked. SQLite locks nothing; its only process uses its own locks."""

    async def check(self) -> None:
        """Return if the engine responds."""

    async def erase_deleted(self) -> None:
        """Make deleted data unreadable in SQLite's files; if a reader prevented it, call this again
        later. PostgreSQL does so on its own in time."""

    async def close(self) -> None: ...


class SqliteDatabase:
    """One file, one writer thread, and group commit: waiting writes share one fsync.

    Each write runs in its own savepoint, so that a failed one is rolled back alone. When there are
    more reads than threads, several share one run of a thread.
    """

    name = "sqlite"
    concurrent_writers = False
    _READERS = 4
    _GROUP = 64
    _READ_GROUP = 8

    def __init__(self, path: Path, *, schema: str) -> None:
        self._path = path
        self._schema = schema
        path.parent.mkdir(parents=True, exist_ok=True)
        path.touch(mode=0o600)  # owner only; SQLite's files beside it inherit the mode
        self._write_engine = sqlite_engine(path, schema, begin="BEGIN IMMEDIATE", readers=0)
        self._without_transactions = self._write_engine.execution_options(**WITHOUT_TRANSACTION)
        self._read_engine = sqlite_engine(path, schema, begin="BEGIN", readers=self._READERS)
        self._writer = ThreadPoolExecutor(1, thread_name_prefix=f"{schema}-writer")
        self._readers = ThreadPoolExecutor(self._READERS, thread_name_prefix=f"{schema}-reader")
        self._writes = Batcher(self._commit_group, key=id, parallel=1, max_size=self._GROUP)
        self._reads = Batcher(
            self._read_group,
            key=id,
            parallel=self._READERS,
            max_size=self._READ_GROUP,
            is_spread=True,
        )
        self._inode: int | None = None

    @property
    def folder(self) -> Path:
        return self._path.parent

    async def read(self, work: Work[T]) -> T:
        try:
            result: T = await self._reads.submit(work)
        except exc.DBAPIError as error:
            raise_unavailable(error, self.name)
        return result

    async def write(self, work: Work[T]) -> T:
        try:
            result: T = await self._writes.submit(work)
        except exc.DBAPIError as error:
            raise_unavailable(error, self.name)
        return result

    async def run_statement(self, work: Work[T]) -> T:
        loop = asyncio.get_running_loop()
        try:
            return await loop.run_in_executor(self._writer, self._alone, work)
        except exc.DBAPIError as error:
            raise_unavailable(error, self.name)

    def _alone(self, work: Work[T]) -> T:
        with self._without_transactions.connect() as connection:
            return work(connection)

    async def hold(self, work: Work[T], then: Callable[[T], Awaitable[R]]) -> R:
        return await then(await self.read(work))

    async def _commit_group(self, works: Sequence[Work[Any]]) -> Sequence[Any]:
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(self._writer, self._commit_together, works)

    async def _read_group(self, works: Sequence[Work[Any]]) -> Sequence[Any]:
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(self._readers, self._read_together, works)

    def _commit_together(self, works: Sequence[Work[Any]]) -> list[Any]:
        try:
            with self._write_engine.begin() as connection:
                if len(works) == 1:
                    return [works[0](connection)]
                return [_in_savepoint(connection, work) for work in works]
        except Exception as error:
            return [error] * len(works)

    def _read_together(self, works: Sequence[Work[Any]]) -> list[Any]:
        with self._read_engine.begin() as connection:
            return [_result_or_error(connection, work) for work in works]

    async def check(self) -> None:
        await self.read(_select_one)
        loop = asyncio.get_running_loop()
        try:
            inode = (await loop.run_in_executor(self._readers, self._path.stat)).st_ino
        except OSError as error:
            raise UnavailableError(f"The database file {self._path} is gone.") from error
        self._inode = self._inode or inode
        if inode != self._inode:
            raise UnavailableError(f"The database file {self._path} was replaced while in use.")

    async def erase_deleted(self) -> None:
        loop = asyncio.get_running_loop()
        try:
            await loop.run_in_executor(self._writer, self._truncate_wal)
        except sqlite3.Error as error:
            raise_unavailable(error, self.name)

    def _truncate_wal(self) -> None:
        """Outside of a transaction, as SQLite requires. Deleted pages in the main file are
        overwritten on deletion."""
        with closing(self._write_engine.raw_connection()) as connection:
            connection.cursor().execute(f"PRAGMA {self._schema}.wal_checkpoint(TRUNCATE)")

    async def close(self) -> None:
        await self._writes.drain()
        await self._reads.drain()
        for pool, engine in (
            (self._writer, self._write_engine),
            (self._readers, self._read_engine),
        ):
            await asyncio.get_running_loop().run_in_executor(pool, engine.dispose)
            pool.shutdown()


class PostgresDatabase:
    """A pool of asyncpg connections; a transaction that fails with a deadlock is retried."""

    name = "postgresql"
    concurrent_writers = True
    _ATTEMPTS = 5
    _TIMEOUT_SEC = 10
    _RERUN = frozenset({"40001", "40P01"})
    folder = None

    def __init__(
        self, url: sa.URL, *, pool_size: int, connect: Callable[..., Any] | None = None
    ) -> None:
        from sqlalchemy.ext.asyncio import create_async_engine

        self._engine = create_async_engine(
            url.set(drivername="postgresql+asyncpg"),
            pool_size=pool_size,
            max_overflow=0,
            pool_timeout=self._TIMEOUT_SEC,
            pool_use_lifo=True,
            connect_args={
                **({} if connect is None else {"async_creator_fn": connect}),
                "timeout": self._TIMEOUT_SEC,
                "command_timeout": 60,
                "server_settings": {
                    "application_name": "sandyard",
                    "jit": "off",
                    "lock_timeout": f"{self._TIMEOUT_SEC}s",
                    # a hung process must not commit its writes minutes later
                    "idle_in_transaction_session_timeout": "30s",
                },
            },
        )
        self._without_transactions = self._engine.sync_engine.execution_options(
            isolation_level="AUTOCOMMIT"
        )

    async def read(self, work: Work[T]) -> T:
        try:
            return await greenlet_spawn(self._in_transaction, work)
        except (exc.DBAPIError, exc.TimeoutError, OSError, TimeoutError) as error:
            raise_unavailable(error, self.name)

    async def write(self, work: Work[T]) -> T:
        return await self._run(self._in_transaction, work)

    async def run_statement(self, work: Work[T]) -> T:
        return await self._run(self._alone, work)

    async def _run(self, how: Callable[[Work[T]], T], work: Work[T]) -> T:
        for attempt in range(self._ATTEMPTS):
            try:
                return await greenlet_spawn(how, work)
            except exc.IntegrityError:
                raise
            except (exc.DBAPIError, exc.TimeoutError, OSError, TimeoutError) as error:
                if _sqlstate(error) not in self._RERUN or attempt + 1 == self._ATTEMPTS:
                    raise_unavailable(error, self.name)
        raise AssertionError("unreachable")

    def _in_transaction(self, work: Work[T]) -> T:
        """All in one greenlet; SQLAlchemy's own way needs five and a task."""
        with self._engine.sync_engine.begin() as connection:
            return work(connection)

    def _alone(self, work: Work[T]) -> T:
        with self._without_transactions.connect() as connection:
            return work(connection)

    async def hold(self, work: Work[T], then: Callable[[T], Awaitable[R]]) -> R:
        try:
            async with self._engine.begin() as connection:
                return await then(await connection.run_sync(work))
        except (exc.DBAPIError, exc.TimeoutError, OSError, TimeoutError) as error:
            raise_unavailable(error, self.name)

    async def check(self) -> None:
        await self.read(_select_one)

    async def erase_deleted(self) -> None:
        pass

    async def close(self) -> None:
        await self._engine.dispose()


def open_database(
    login: PostgresLogin | str | None, *, data_dir: Path, part: str, pool_size: int
) -> Database:
    """The database of one part: its own file in `data_dir`, or the shared PostgreSQL, whose URL may
    change at runtime."""
    if login is None:
        return SqliteDatabase(data_dir / f"{part}.db", schema=part)
    if isinstance(login, str):
        return PostgresDatabase(sa.make_url(login), pool_size=pool_size)
    return PostgresDatabase(login.url, pool_size=pool_size, connect=login.connect)


def upsert(connection: sa.Connection, table: sa.Table) -> Any:
    """An INSERT that supports ON CONFLICT."""
    if connection.dialect.name == "sqlite":
        from sqlalchemy.dialects import sqlite

        return sqlite.insert(table)
    from sqlalchemy.dialects import postgresql

    return postgresql.insert(table)


def insert_or_update(
    connection: sa.Connection, table: sa.Table, row: Mapping[str, Any], *, key: Sequence[str]
) -> None:
    insert = upsert(connection, table).values(row)
    connection.execute(insert.on_conflict_do_update(index_elements=key, set_=row))


def insert_or_ignore(connection: sa.Connection, table: sa.Table) -> Any:
    return upsert(connection, table).on_conflict_do_nothing()


def raise_unavailable(error: Exception, engine: str) -> NoReturn:
    """Raise UnavailableError if the engine itself failed; else reraise the driver's error."""
    if isinstance(error, exc.IntegrityError | exc.DataError):
        raise error
    cause = getattr(error, "orig", None) or error
    reason = str(cause).strip().splitlines()[0] if str(cause).strip() else type(cause).__name__
    known = _TROUBLE.get(_error_code(cause)) or _UNREACHABLE.get(type(cause))
    trouble = known or "does not respond. Try again shortly"
    raise UnavailableError(f"The {engine} engine {trouble}.", reason=reason) from error


def _error_code(error: Any) -> str | int | None:
    """For SQLite the primary code."""
    code = getattr(error, "sqlite_errorcode", None)
    return code & 0xFF if isinstance(code, int) else getattr(error, "sqlstate", None)


def _sqlstate(error: Exception) -> str | None:
    cause = getattr(error, "orig", None)
    return getattr(cause, "sqlstate", None) or getattr(cause, "pgcode", None)


def _in_savepoint(connection: sa.Connection, work: Work[Any]) -> Any:
    """The result or the error of one write among others; uses the driver directly, because
    SQLAlchemy's overhead for a savepoint exceeds a small write."""
    run_in_driver(connection, "SAVEPOINT work", ())
    try:
        result = work(connection)
    except Exception as error:
        if not _driver(connection).in_transaction:
            raise  # on a full disk the engine has rolled back the whole transaction
        run_in_driver(connection, "ROLLBACK TO work", ())
        result = error
    run_in_driver(connection, "RELEASE work", ())
    return result


def _driver(connection: sa.Connection) -> sqlite3.Connection:
    driver: sqlite3.Connection = connection.connection.dbapi_connection  # type: ignore[assignment]
    return driver


def _result_or_error(connection: sa.Connection, work: Work[Any]) -> Any:
    try:
        return work(connection)
    except Exception as error:
        return error


def _select_one(connection: sa.Connection) -> None:
    connection.execute(sa.select(1))
