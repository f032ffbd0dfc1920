"""Pools of any size, made by bulk SQL with the schema of the migrations and a right tally."""

import sqlite3
import time
from contextlib import closing
from pathlib import Path

from benchmarks.loops import run
from sandyard.broker.stores.sql import MIGRATIONS
from sandyard.kit import ids
from sandyard.kit.sql.database import SqliteDatabase

LAB_HOURS = 4
LAB_SECONDS = LAB_HOURS * 3600

_FILL = """
INSERT INTO sandboxes (
    sandbox_id, name, external_id, status, lab_duration_hours, allocated_to_track,
    idempotency_key, allocated_at, lease_track, lease_key, lease_ends_at, deletion_retry_count,
    last_synced, created_at, updated_at, sequence
)
WITH RECURSIVE
    numbers(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM numbers WHERE n < :rows),
    made(n, is_leased, begun_at) AS (SELECT n, n % 2 AND :half_leased, :now - n % 3600 FROM numbers)
SELECT
    sandbox_id('ext-' || n), printf('sandbox-%07d', n), 'ext-' || n,
    iif(is_leased, 'allocated', 'available'), :lab_hours, iif(is_leased, 'earlier-' || n, NULL),
    iif(is_leased, 'earlier-' || n, NULL), iif(is_leased, begun_at, 0),
    iif(is_leased, 'earlier-' || n, NULL), iif(is_leased, 'earlier-' || n, NULL),
    iif(is_leased, begun_at + :lab_seconds, NULL), 0, :now, :now, :now, 1 + is_leased
FROM made
"""
_COUNT = "INSERT INTO tally (status, change) SELECT status, count(*) FROM sandboxes GROUP BY status"


def make_sqlite_pool(path: Path, rows: int, *, half_leased: bool = False) -> None:
    """A file with `rows` sandboxes: all free, or every other one leased to a track of its own."""
    run(_create_schema(path))
    values = {
        "rows": rows,
        "half_leased": half_leased,
        "now": int(time.time()),
        "lab_hours": LAB_HOURS,
        "lab_seconds": LAB_SECONDS,
    }
    with closing(sqlite3.connect(path, isolation_level=None)) as connection:
        connection.create_function("sandbox_id", 1, ids.sandbox_id, deterministic=True)
        connection.execute("PRAGMA journal_mode=OFF")  # a fill that breaks off is thrown away
        connection.execute("PRAGMA synchronous=OFF")
        connection.execute("PRAGMA cache_size=-1000000")
        connection.execute("BEGIN")
        connection.execute(_FILL, values)
        connection.execute(_COUNT)
        connection.execute("COMMIT")
        connection.execute("PRAGMA journal_mode=WAL")


async def _create_schema(path: Path) -> None:
    database = SqliteDatabase(path, schema=MIGRATIONS.part)
    try:
        await MIGRATIONS.upgrade(database)
    finally:
        await database.close()


class LargePool:
    """The pool of a million rows: made when first asked for, and shared, for it takes a while."""

    ROWS = 1_000_000

    def __init__(self, folder: Path) -> None:
        self._path = folder / "large.db"

    def path(self) -> Path:
        if not self._path.exists():
            make_sqlite_pool(self._path, self.ROWS, half_leased=True)
        return self._path
