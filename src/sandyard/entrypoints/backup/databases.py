"""Copies of SQLite databases in use: all of one point in time, without blocking writers for
long."""

import sqlite3
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, closing, contextmanager
from pathlib import Path

from sandyard.entrypoints.backup.errors import ArchiveInvalidError, BackupError

_LOCK_ALL_SEC = 2.0
"""Well below a writer's timeout (`kit/sql/sqlite_engine.py`)."""
_TRIES = 20
_PAGES = 1000
_HAS_VERSION = "SELECT 1 FROM sqlite_schema WHERE name = 'schema_version' AND type = 'table'"


@contextmanager
def reading_together(
    paths: Sequence[Path], *, while_locked: Callable[[], None]
) -> Iterator[Sequence[sqlite3.Connection]]:
    """Connections that see each database as of one point in time, for as long as they are open.

    At that point all of them are locked against writes, and `while_locked` is called: what it reads
    is of the same point in time.
    """
    with ExitStack() as stack:
        readers = [stack.enter_context(_opened(path)) for path in paths]
        with _translated(), _locked(paths):
            for reader in readers:
                reader.execute("BEGIN")
                reader.execute("SELECT count(*) FROM sqlite_schema").fetchone()
            while_locked()
        yield readers


def copy_database(source: sqlite3.Connection, to: Path, advance: Callable[[int], None]) -> None:
    """Copy the connection's snapshot into a new file, and check the copy; `advance` is called with
    the number of bytes copied."""
    [page_bytes] = source.execute("PRAGMA page_size").fetchone()
    copied = 0

    def progress(_status: int, remaining: int, total: int) -> None:
        nonlocal copied
        advance((total - remaining - copied) * page_bytes)
        copied = total - remaining

    with _translated(), closing(sqlite3.connect(to)) as target:
        source.backup(target, pages=_PAGES, progress=progress)
        found = target.execute("PRAGMA quick_check(1)").fetchone()[0]
    if found != "ok":
        raise BackupError(f"{to.name} is damaged: {found}. Restore an earlier backup.")


def require_sound(path: Path, *, schema: str | None) -> None:
    """Raise ArchiveInvalidError unless it is an intact database with this schema version.

    It is opened read-only: no file is created beside it, and nothing that it contains is executed.
    """
    try:
        address = f"{path.absolute().as_uri()}?mode=ro&immutable=1"
        with closing(sqlite3.connect(address, uri=True)) as database:
            database.execute("PRAGMA trusted_schema = OFF")
            found = database.execute("PRAGMA quick_check(1)").fetchone()[0]
            version = schema_version(database)
    except (sqlite3.Error, BackupError) as error:
        raise ArchiveInvalidError(f"{path.name} is not a valid database: {error}") from error
    if found != "ok":
        raise ArchiveInvalidError(f"{path.name} is damaged: {found}.")
    if version != schema:
        raise ArchiveInvalidError(f"{path.name} does not have the schema that the manifest names.")


def schema_version(database: sqlite3.Connection) -> str | None:
    with _translated():
        if not database.execute(_HAS_VERSION).fetchone():
            return None
        found = database.execute("SELECT max(version_num) FROM schema_version").fetchone()[0]
    return None if found is None else str(found)


@contextmanager
def _locked(paths: Sequence[Path]) -> Iterator[None]:
    """Writers of all of them wait during the block."""
    with ExitStack() as stack:
        writers = [stack.enter_context(_opened(path)) for path in paths]
        for attempt in range(1, _TRIES + 1):
            try:
                _lock_all(writers)
                break
            except sqlite3.OperationalError as error:
                for writer in writers:
                    writer.rollback()
                if error.sqlite_errorcode != sqlite3.SQLITE_BUSY or attempt == _TRIES:
                    raise
        yield


def _lock_all(writers: Sequence[sqlite3.Connection]) -> None:
    until = time.monotonic() + _LOCK_ALL_SEC
    for writer in writers:
        while not _lock(writer, until):
            time.sleep(0.001)  # SQLite itself polls too rarely to get between two commits


def _lock(writer: sqlite3.Connection, until: float) -> bool:
    try:
        writer.execute("BEGIN IMMEDIATE")
    except sqlite3.OperationalError as error:
        if error.sqlite_errorcode != sqlite3.SQLITE_BUSY or time.monotonic() > until:
            raise
        return False
    return True


@contextmanager
def _opened(path: Path) -> Iterator[sqlite3.Connection]:
    with _translated():
        connection = sqlite3.connect(f"{path.absolute().as_uri()}?mode=rw", uri=True, timeout=0)
        connection.isolation_level = None
    with closing(connection):
        yield connection


@contextmanager
def _translated() -> Iterator[None]:
    try:
        yield
    except sqlite3.DatabaseError as error:
        raise BackupError(f"The databases can't be copied: {error}.") from error
