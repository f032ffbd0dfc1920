"""Claims through the store on PostgreSQL beside the same claim as a bare statement."""

import asyncio
import time
from collections.abc import Awaitable, Callable
from itertools import count
from pathlib import Path
from statistics import median

import asyncpg
import sqlalchemy as sa

from benchmarks.loops import run
from benchmarks.pools import LAB_HOURS, LAB_SECONDS
from benchmarks.report import Figure, Measured, Say
from sandyard.broker.pool.model import Claim
from sandyard.broker.stores.sql import MIGRATIONS, SqlPoolStore
from sandyard.kit.sql.database import PostgresDatabase
from tests.support.storage.engines import create_database, postgres_server

_CONNECTIONS = 16
_CALLERS = {16: 1.3, 64: 1.0, 256: 1.0}
"""How many, and the least that their claims are to be of the bare ones."""
_ROUNDS = 5
_SLICE_SEC = 1.5
_SLICE_CLAIMS = 20_000
_WARM_UP_SEC = 0.5
_FREE_ROWS = 500_000

_FILL = """
INSERT INTO broker.sandboxes (sandbox_id, name, external_id, status, lab_duration_hours,
    last_synced, created_at, updated_at, sequence)
SELECT gen_random_uuid()::text, 'sandbox-' || to_char(n, 'FM0000000'), 'ext-' || n, 'available',
    $2::float, $3::bigint, $3, $3, 1
FROM generate_series(1, $1::int) AS n
"""
_COUNT = "INSERT INTO broker.tally (status, change) VALUES ('available', $1)"
_BARE_CLAIM = """
UPDATE broker.sandboxes SET status = 'allocated', allocated_to_track = $1, idempotency_key = $1,
    lease_track = $1, lease_key = $1, allocated_at = $2, updated_at = $2, lease_ends_at = $3
WHERE sandbox_id = (
    SELECT sandbox_id FROM broker.sandboxes WHERE status = 'available'
    ORDER BY name, sandbox_id FOR UPDATE SKIP LOCKED LIMIT 1)
RETURNING sandbox_id, name, external_id
"""

ClaimOne = Callable[[str], Awaitable[bool]]
"""Claims for a track of this name; tells whether it was given a sandbox."""


def measure(folder: Path, say: Say) -> Measured:
    say("postgres: starting the server and filling the pool")
    with postgres_server(folder / "postgres", is_durable=True) as server_url:
        return run(_measure(server_url, say))


async def _measure(server_url: str, say: Say) -> Measured:
    url = await create_database(server_url)
    database = PostgresDatabase(sa.make_url(url), pool_size=_CONNECTIONS)
    try:
        await MIGRATIONS.upgrade(database)
        async with asyncpg.create_pool(url, min_size=_CONNECTIONS, max_size=_CONNECTIONS) as pool:
            durability = await _fill(pool)
            bare, through_store = await _alternate(pool, SqlPoolStore(database), say)
    finally:
        await database.close()
    figures = [Figure(f"  bare claims per second ({durability})", f"{median(bare):,.0f}")]
    for callers, rates in through_store.items():
        ratios = [ours / theirs for ours, theirs in zip(rates, bare, strict=True)]
        what = f"claims ÷ bare statement, PostgreSQL, {callers} callers"
        figures.append(Figure.at_least(what, ratios, _CALLERS[callers]))
        figures.append(Figure("  claims per second", f"{median(rates):,.0f}"))
    return Measured(figures, f"postgres {_FREE_ROWS:,}")


async def _fill(pool: "asyncpg.Pool[asyncpg.Record]") -> str:
    """Fill the table, settle it as autovacuum would in time, and say what a commit waits for."""
    await pool.execute(_FILL, _FREE_ROWS, LAB_HOURS, int(time.time()), timeout=120)
    await pool.execute(_COUNT, _FREE_ROWS)
    await pool.execute("VACUUM ANALYZE broker.sandboxes", timeout=120)
    await pool.execute("CHECKPOINT", timeout=120)
    settings = [
        f"{name} {await pool.fetchval(f'SHOW {name}')}" for name in ("fsync", "synchronous_commit")
    ]
    return ", ".join(settings)


async def _alternate(
    pool: "asyncpg.Pool[asyncpg.Record]", store: SqlPoolStore, say: Say
) -> tuple[list[float], dict[int, list[float]]]:
    names = (f"track-{number}" for number in count())

    async def claim_bare(track: str) -> bool:
        now = int(time.time())
        return await pool.fetchrow(_BARE_CLAIM, track, now, now + LAB_SECONDS) is not None

    async def claim_through_store(track: str) -> bool:
        claimed = await store.claim(Claim(track_id=track, key=track, now=int(time.time())))
        return claimed is not None and claimed.is_new

    async def rate(claim: ClaimOne, callers: int, seconds: float = _SLICE_SEC) -> float:
        # Without this, each slice would wade through the dead index entries of those before it.
        await pool.execute("VACUUM (INDEX_CLEANUP ON) broker.sandboxes", timeout=120)
        return await _claims_per_second(lambda: claim(next(names)), callers, seconds)

    await rate(claim_bare, _CONNECTIONS, _WARM_UP_SEC)
    await rate(claim_through_store, _CONNECTIONS, _WARM_UP_SEC)
    bare: list[float] = []
    through_store: dict[int, list[float]] = {callers: [] for callers in _CALLERS}
    for number in range(1, _ROUNDS + 1):
        say(f"postgres: round {number} of {_ROUNDS}")
        bare.append(await rate(claim_bare, _CONNECTIONS))
        for callers, rates in through_store.items():
            rates.append(await rate(claim_through_store, callers))
    return bare, through_store


async def _claims_per_second(
    claim: Callable[[], Awaitable[bool]], callers: int, seconds: float
) -> float:
    """`callers` claim one after another until the time is up or enough were made.

    Raises RuntimeError unless each claim was given a sandbox of its own.
    """
    started = time.perf_counter()
    done = 0

    async def call() -> None:
        nonlocal done
        while done < _SLICE_CLAIMS and time.perf_counter() - started < seconds:
            if not await claim():
                raise RuntimeError("a claim was not given a sandbox of its own")
            done += 1

    async with asyncio.TaskGroup() as group:
        for _ in range(callers):
            group.create_task(call())
    return done / (time.perf_counter() - started)
