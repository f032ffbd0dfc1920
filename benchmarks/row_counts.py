"""What a single claim costs in a large pool beside a small one."""

import time
from pathlib import Path
from statistics import median

from benchmarks.loops import run
from benchmarks.pools import LargePool, make_sqlite_pool
from benchmarks.report import Figure, Measured, Say
from sandyard.broker.pool.model import Claim
from sandyard.broker.stores.sql import MIGRATIONS, SqlPoolStore
from sandyard.kit.sql.database import SqliteDatabase

_SMALL = 1_000
_WARM_UPS = 50
_SAMPLES = 400
_MOST = 1.3


def measure(folder: Path, large: LargePool, say: Say) -> Measured:
    say(f"rows: filling pools of {_SMALL:,} and {large.ROWS:,} rows")
    small_path = folder / "small.db"
    make_sqlite_pool(small_path, _SMALL, half_leased=True)
    large_path = large.path()
    say(f"rows: {_SAMPLES} claims in each pool, in turn")
    small_sec, large_sec = run(_compare(small_path, large_path))
    return Measured(
        [
            Figure.at_most(
                f"one claim with {large.ROWS:,} rows ÷ with {_SMALL:,}, SQLite",
                large_sec / small_sec,
                _MOST,
            ),
            Figure(f"  with {large.ROWS:,} rows", f"{large_sec * 1000:.2f} ms"),
            Figure(f"  with {_SMALL:,} rows", f"{small_sec * 1000:.2f} ms"),
        ],
        f"rows {_SMALL:,} and {large.ROWS:,}, half of them leased",
    )


async def _compare(small_path: Path, large_path: Path) -> tuple[float, float]:
    paths = (small_path, large_path)
    stores = [SqlPoolStore(SqliteDatabase(path, schema=MIGRATIONS.part)) for path in paths]
    try:
        samples: list[list[float]] = [[], []]
        for number in range(_WARM_UPS + _SAMPLES):
            for store, times in zip(stores, samples, strict=True):
                times.append(await _claim(store, number))
        small, large = (median(times[_WARM_UPS:]) for times in samples)
        return small, large
    finally:
        for store in stores:
            await store.close()


async def _claim(store: SqlPoolStore, number: int) -> float:
    name = f"rows-{number}"
    started = time.perf_counter()
    claimed = await store.claim(Claim(track_id=name, key=name, now=int(time.time())))
    seconds = time.perf_counter() - started
    if claimed is None or not claimed.is_new:
        raise RuntimeError("a claim was not given a sandbox of its own")
    return seconds
