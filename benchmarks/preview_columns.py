"""`sandbox_info` as JSONB beside the same in columns of their own, on PostgreSQL."""

import asyncio
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from statistics import median

import asyncpg

from benchmarks.loops import run
from benchmarks.report import Figure, Measured, Say
from tests.support.storage.engines import create_database, postgres_server

_ROWS = 200_000
_CALLERS = 8
_ROUNDS = 5
_SLICE_SEC = 1.0
_SHARED = """
    project_id varchar(25) PRIMARY KEY, account_id varchar(12) NOT NULL,
    running_until timestamptz, files_version integer NOT NULL, sequence bigint NOT NULL"""
_MAKE = f"""
CREATE TABLE as_json ({_SHARED}, sandbox_info jsonb);
CREATE TABLE as_columns ({_SHARED}, sandbox_id text, preview_url text, start_time timestamptz,
    end_time timestamptz, attempt text, sandbox_files_version integer);
INSERT INTO as_columns
SELECT 'prj-' || lpad(n::text, 17, '0'), '123456789012', now() + n * interval '1 second', 3, n,
    'i' || md5(n::text), 'https://8080-i' || md5(n::text) || '.e2b.app', now(),
    now() + n * interval '1 second', md5('a' || n), 3
FROM generate_series(1, {_ROWS}) AS n;
INSERT INTO as_json
SELECT project_id, account_id, running_until, files_version, sequence, jsonb_build_object(
    'sandbox_id', sandbox_id, 'preview_url', preview_url, 'start_time', start_time,
    'end_time', end_time, 'attempt', attempt, 'files_version', sandbox_files_version)
FROM as_columns;
CREATE INDEX ON as_json (running_until, project_id);
CREATE INDEX ON as_columns (running_until, project_id);
"""
_JSON = ("sandbox_info",)
_COLUMNS = ("sandbox_id", "preview_url", "start_time", "end_time", "attempt")
_RECORD = {
    "as_json": "sandbox_info = sandbox_info || jsonb_build_object('end_time', now(), "
    "'files_version', 4)",
    "as_columns": "end_time = now(), sandbox_files_version = 4",
}
_BY_ATTEMPT = {"as_json": "sandbox_info->>'attempt'", "as_columns": "attempt"}
_AGE = "running_until > now() AND {} = ANY($1::text[])"

Step = Callable[["asyncpg.Pool[asyncpg.Record]", str, int], Awaitable[object]]


def measure(folder: Path, say: Say) -> Measured:
    with postgres_server(folder / "postgres", is_durable=True) as server_url:
        return run(_measure(server_url, say))


async def _measure(server_url: str, say: Say) -> Measured:
    url = await create_database(server_url)
    async with asyncpg.create_pool(url, min_size=_CALLERS, max_size=_CALLERS) as pool:
        say(f"preview-columns: {_ROWS:,} previews twice")
        await pool.execute(_MAKE, timeout=180)
        for table in _RECORD:
            await pool.execute(f"VACUUM ANALYZE {table}", timeout=120)
        size = {table: await _size(pool, table) for table in _RECORD}
        figures = []
        for what, step in _STEPS.items():
            rates = [await _rates(pool, step) for _ in range(_ROUNDS)]
            ratios = [each["as_json"] / each["as_columns"] for each in rates]
            figures.append(Figure.at_least(f"{what}: JSONB ÷ columns", ratios, 0.8))
            each = ", ".join(f"{median(r[table] for r in rates):,.0f}" for table in _RECORD)
            figures.append(Figure("  a second, JSONB and columns", each))
            say(f"preview-columns: {what}, {each} a second")
    sizes = ", ".join(f"{each / _ROWS:.0f}" for each in size.values())
    figures.append(Figure("bytes of a preview with its indexes, JSONB and columns", sizes))
    return Measured(figures, f"postgres {_ROWS:,}")


async def _size(pool: "asyncpg.Pool[asyncpg.Record]", table: str) -> int:
    return int(await pool.fetchval("SELECT pg_total_relation_size($1::regclass)", table))


async def _rates(pool: "asyncpg.Pool[asyncpg.Record]", step: Step) -> dict[str, float]:
    """How often a second, for either; they take turns, so that both have the same machine."""
    return {table: await _rate(pool, step, table) for table in _RECORD}


async def _rate(pool: "asyncpg.Pool[asyncpg.Record]", step: Step, table: str) -> float:
    until = time.perf_counter() + _SLICE_SEC
    done = 0

    async def call(number: int) -> None:
        nonlocal done
        while time.perf_counter() < until:
            number = (number * 48271 + 11) % _ROWS
            await step(pool, table, number + 1)
            done += 1

    await asyncio.gather(*(call(number) for number in range(_CALLERS)))
    return done / _SLICE_SEC


async def _find(pool: "asyncpg.Pool[asyncpg.Record]", table: str, number: int) -> object:
    wanted = ", ".join(_JSON if table == "as_json" else _COLUMNS)
    query = f"SELECT account_id, sequence, {wanted} FROM {table} WHERE project_id = $1"
    return await pool.fetchrow(query, _id(number))


async def _record(pool: "asyncpg.Pool[asyncpg.Record]", table: str, number: int) -> object:
    query = (
        f"UPDATE {table} SET {_RECORD[table]}, sequence = sequence + 1 "
        "WHERE project_id = $1 AND sequence >= 0"
    )
    return await pool.execute(query, _id(number))


async def _known(pool: "asyncpg.Pool[asyncpg.Record]", table: str, number: int) -> object:
    """Which of some attempts a running preview has, as the sweep asks."""
    soon = f"running_until < now() + interval '{1000 + number % 500} seconds'"
    has = _AGE.format(_BY_ATTEMPT[table])
    query = f"SELECT project_id FROM {table} WHERE {soon} AND {has}"
    return await pool.fetch(query, ["none"])


def _id(number: int) -> str:
    return f"prj-{number:017}"


_STEPS: dict[str, Step] = {
    "a preview read by its project": _find,
    "its sandbox recorded by compare-and-set": _record,
    "a thousand running previews searched for attempts": _known,
}
