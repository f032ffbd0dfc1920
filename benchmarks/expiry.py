"""What the expiry job costs in a large pool beside a small one, with the same number due."""

import logging
import random
import time
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from statistics import median

import sqlalchemy as sa
from prometheus_client import CollectorRegistry

from benchmarks.loops import run
from benchmarks.pools import LAB_SECONDS, LargePool, make_sqlite_pool
from benchmarks.report import Figure, Measured, Say
from sandyard.broker.metrics import BrokerMetrics
from sandyard.broker.pool.jobs import Expiry
from sandyard.broker.stores.sql import MIGRATIONS, SqlPoolStore
from sandyard.kit.clock import SystemClock
from sandyard.kit.observability.log import JsonFormatter
from sandyard.kit.sql.database import SqliteDatabase

_SMALL = 10_000
_DUE = 100
_WARM_UPS = 2
_REPEATS = 15
_GRACE_SEC = 1800
_MOST = 2

_PUT_BACK = """
UPDATE sandboxes SET status = 'allocated', allocated_at = :now, lease_ends_at = :now + :lab,
    lease_track = allocated_to_track, lease_key = idempotency_key,
    deletion_requested_at = NULL, next_attempt_at = NULL WHERE status = 'pending_deletion'
"""
_RECOUNT = (
    "INSERT INTO tally (status, change) VALUES ('pending_deletion', :less), ('allocated', :more)"
)
_FORGET = """
UPDATE sandboxes SET allocated_at = :then, lease_ends_at = :then + :lab
WHERE rowid = :row AND status = 'allocated'
"""


def measure(folder: Path, large: LargePool, say: Say) -> Measured:
    say(f"expiry: filling pools of {_SMALL:,} and {large.ROWS:,} rows")
    small_path = folder / "expiry.db"
    make_sqlite_pool(small_path, _SMALL, half_leased=True)
    large_path = large.path()
    say(f"expiry: {_REPEATS} runs in each pool, in turn")
    with _logging_to(folder / "expiry.log"):
        small_sec, large_sec = run(_compare((small_path, _SMALL), (large_path, large.ROWS)))
    return Measured(
        [
            Figure.at_most(
                f"expiry of {_DUE} among {large.ROWS:,} rows ÷ among {_SMALL:,}, SQLite",
                large_sec / small_sec,
                _MOST,
            ),
            Figure(f"  among {large.ROWS:,} rows", f"{large_sec * 1000:.1f} ms"),
            Figure(f"  among {_SMALL:,} rows", f"{small_sec * 1000:.1f} ms"),
        ],
        f"expiry {_SMALL:,} and {large.ROWS:,}, half of them leased",
    )


async def _compare(*pools: tuple[Path, int]) -> tuple[float, float]:
    databases = [SqliteDatabase(path, schema=MIGRATIONS.part) for path, _ in pools]
    try:
        times: list[list[float]] = [[] for _ in pools]
        choice = random.Random(1)
        for _ in range(_WARM_UPS + _REPEATS):
            for index, database in enumerate(databases):
                leased = range(1, pools[index][1], 2)
                await database.write(partial(_make_due, rows=choice.sample(leased, _DUE)))
                times[index].append(await _expire(SqlPoolStore(database)))
        small, large = (median(seconds[_WARM_UPS:]) for seconds in times)
        return small, large
    finally:
        for database in databases:
            await database.close()


def _make_due(connection: sa.Connection, rows: list[int]) -> None:
    """Lease again what was expired before, and let the leases of `rows` be long over."""
    now = int(time.time())
    back = connection.execute(sa.text(_PUT_BACK), {"now": now, "lab": LAB_SECONDS}).rowcount
    if back:
        connection.execute(sa.text(_RECOUNT), {"more": back, "less": -back})
    then = now - 2 * LAB_SECONDS
    connection.execute(
        sa.text(_FORGET),
        [{"then": then - row % 1000, "lab": LAB_SECONDS, "row": row} for row in rows],
    )


async def _expire(store: SqlPoolStore) -> float:
    metrics = BrokerMetrics(CollectorRegistry())
    job = Expiry(store, clock=SystemClock(), metrics=metrics, grace_sec=_GRACE_SEC)
    started = time.perf_counter()
    report = await job.run()
    seconds = time.perf_counter() - started
    if report.expired != _DUE:
        raise RuntimeError(f"{report.expired} rows were expired, not {_DUE}")
    return seconds


@contextmanager
def _logging_to(path: Path) -> Iterator[None]:
    """The job warns of each track: its lines are written as in production, but to a file."""
    handler = logging.FileHandler(path)
    handler.setFormatter(JsonFormatter())
    logger = logging.getLogger("sandyard")
    logger.addHandler(handler)
    try:
        yield
    finally:
        logger.removeHandler(handler)
        handler.close()
