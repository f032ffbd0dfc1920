"""From the start call to a served page, and a list of sandboxes by the number of rows."""

import time
from collections.abc import Mapping, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass
from pathlib import Path
from statistics import median

import asyncpg
import httpx
import sqlalchemy as sa

from benchmarks.loops import run
from benchmarks.report import Figure, Measured, Say
from sandyard.kit.sql.database import Database, PostgresDatabase
from sandyard.platform.schema.migrations import MIGRATIONS
from tests.support.clocks import RunningClock
from tests.support.platform.in_process import Caller, PlatformApi, platform_api
from tests.support.platform.sandboxes import add_template
from tests.support.servers.processes import ServerProcess, sandyard_serve
from tests.support.servers.users import signed_up
from tests.support.storage.engines import create_database, postgres_server

_STARTS = 10
_LIMIT_SEC = 0.5
_FEW, _MANY = 1_000, 100_000
_LISTED = 50
_WARM_UPS = 20
_SAMPLES = 200
_MOST = 1.3
FIRST_AT = 1_700_000_000

MADE: Mapping[str, str] = {
    "sqlite": """WITH RECURSIVE
        number(n) AS (SELECT 0 UNION ALL SELECT n + 1 FROM number WHERE n + 1 < :rows),
        made AS (SELECT n, strftime('%Y-%m-%dT%H:%M:%S.000000Z', :first + n, 'unixepoch') AS at
            FROM number)""",
    "postgresql": """WITH made AS (SELECT n, to_timestamp(CAST(:first AS bigint) + n) AS at
        FROM generate_series(0, CAST(:rows AS int) - 1) AS n)""",
}
_OWNER = "CASE n % 2 WHEN 0 THEN :account ELSE :other END"
_FILL_SANDBOXES = f"""
INSERT INTO platform.sandboxes (sandbox_id, name, template_id, owner_account_id, status,
    attempt, created_at, updated_at)
{{made}}
SELECT 'sbx-' || n, 'box ' || n, :template, {_OWNER}, 'stopped', 1, at, at FROM made
"""
_FILL_USAGE = f"""
INSERT INTO platform.sandbox_usage (usage_id, sandbox_id, user_account_id, start_time, end_time,
    hourly_rate, cost, created_at)
{{made}}
SELECT 'usg-' || n, 'sbx-' || n, {_OWNER}, at, at, 1, 1, at FROM made
"""


@dataclass(frozen=True, slots=True)
class _Filled:
    """A Platform with so many sandboxes, every second one of them this caller's."""

    rows: int
    api: PlatformApi
    caller: Caller

    async def list(self) -> float:
        """Seconds. Raises RuntimeError unless the latest were listed, with what they cost."""
        started = time.perf_counter()
        answer = await self.api.call("GET", f"/sandboxes?limit={_LISTED}", self.caller)
        seconds = time.perf_counter() - started
        found = answer.json()["sandboxes"]
        if len(found) != _LISTED or found[0]["sandbox_id"] != f"sbx-{self.rows - 2}":
            raise RuntimeError("those were not the latest sandboxes")
        if not all(float(each["cost"]) for each in found):
            raise RuntimeError("a sandbox is listed without its cost")
        return seconds


def measure(folder: Path, say: Say) -> Measured:
    figures = _starts(folder, say)
    with postgres_server(folder / "postgres") as postgres_url:
        figures += run(_lists("SQLite", folder, None, say))
        figures += run(_lists("PostgreSQL", folder, postgres_url, say))
    return Measured(figures, f"sandboxes {_FEW:,} and {_MANY:,}, half of them the caller's")


def _starts(folder: Path, say: Say) -> list[Figure]:
    """New sandboxes of the static template, each started twice: as new, and with its files."""
    fresh: list[float] = []
    again: list[float] = []
    with (
        sandyard_serve(folder / "data", environment={"PARTS": "platform"}) as server,
        _account(server) as account,
    ):
        found = account.get("/templates?visibility=official&q=static").json()
        [template] = found["templates"]
        for number in range(_STARTS + 1):
            say(f"sandboxes: start {number} of {_STARTS}")
            body = {"name": f"box {number}", "template_id": template["template_id"]}
            path = f"/sandboxes/{account.post('/sandboxes', json=body).json()['sandbox_id']}"
            for times in (fresh, again):
                times.append(_until_served(account, path))
                account.post(f"{path}/stop").raise_for_status()
            account.delete(path).raise_for_status()
    what = "start call to the first page of the static template"
    return [
        Figure.below(what, median(fresh[1:]), _LIMIT_SEC, "s"),
        Figure("  lowest and highest", f"{min(fresh[1:]):.2f} to {max(fresh[1:]):.2f} s"),
        Figure("  of one that was stopped, with its files", f"{median(again[1:]):.2f} s"),
    ]


def _account(server: ServerProcess) -> httpx.Client:
    headers = signed_up(server, "ann", mail=1).headers
    return httpx.Client(base_url=f"{server.url}/api/v1", headers=headers, timeout=20)


def _until_served(account: httpx.Client, path: str) -> float:
    """Seconds. Raises RuntimeError unless a page is served as soon as the start has answered."""
    token = account.post(f"{path}/tokens", json={}).raise_for_status().json()["token"]
    base = str(account.base_url).partition("/api")[0]
    with httpx.Client(timeout=10) as visitor:  # whose making is not what is measured
        started = time.perf_counter()
        url = account.post(f"{path}/start").raise_for_status().json()["preview_url"]
        host = url.partition("//")[2].rstrip("/")
        page = visitor.get(base, headers={"Host": host, "X-Access-Token": token})
        seconds = time.perf_counter() - started
    if page.status_code != 200 or "<html" not in page.text.lower():
        raise RuntimeError(f"{url} answered {page.status_code}")
    return seconds


async def _lists(title: str, folder: Path, postgres_url: str | None, say: Say) -> list[Figure]:
    async with AsyncExitStack() as stack:
        filled: list[_Filled] = []
        for rows in (_FEW, _MANY):
            say(f"sandboxes: {title}, storing {rows:,} sandboxes")
            data_dir = folder / f"{title}-{rows}"
            data_dir.mkdir()
            url = await migrated(postgres_url) if postgres_url else None
            api = await stack.enter_async_context(platform_api(url, data_dir, RunningClock()))
            filled.append(await _fill(api, rows))
            if url:
                await settle(url)
        say(f"sandboxes: {title}, {_SAMPLES} lists of {_LISTED}, in turn")
        few, many = await _compare(filled)
    of = f"list of {_LISTED} sandboxes"
    return [
        Figure.at_most(f"{of} with {_MANY:,} rows ÷ with {_FEW:,}, {title}", many / few, _MOST),
        Figure(f"  with {_MANY:,} rows", f"{many * 1000:.2f} ms"),
        Figure(f"  with {_FEW:,} rows", f"{few * 1000:.2f} ms"),
    ]


async def _compare(filled: Sequence[_Filled]) -> tuple[float, float]:
    """The medians of both, asked in turn, each as often first as second."""
    samples: list[list[float]] = [[], []]
    for number in range(_WARM_UPS + _SAMPLES):
        pairs = list(zip(filled, samples, strict=True))
        for each, times in pairs if number % 2 else reversed(pairs):
            times.append(await each.list())
    few, many = (median(times[_WARM_UPS:]) for times in samples)
    return few, many


async def _fill(api: PlatformApi, rows: int) -> _Filled:
    caller, other = await api.account(), await api.account()
    values = {
        "rows": rows,
        "first": FIRST_AT,
        "account": caller.account_id,
        "other": other.account_id,
    }
    template_id = await add_template(api)
    made = MADE[api.part.database.name]

    def work(connection: sa.Connection) -> None:
        boxes = sa.text(_FILL_SANDBOXES.format(made=made))
        connection.execute(boxes, values | {"template": template_id})
        connection.execute(sa.text(_FILL_USAGE.format(made=made)), values)

    await api.part.database.write(work)
    return _Filled(rows, api, caller)


async def migrated(server_url: str) -> str:
    """A database of its own at the newest schema; its URL."""
    url = await create_database(server_url)
    database: Database = PostgresDatabase(sa.make_url(url), pool_size=1)
    await MIGRATIONS.upgrade(database)
    await database.close()
    return url


async def settle(url: str) -> None:
    """What autovacuum and the next checkpoint would do in time."""
    connection = await asyncpg.connect(url)
    try:
        for statement in ("VACUUM ANALYZE", "CHECKPOINT"):
            await connection.execute(statement, timeout=120)
    finally:
        await connection.close()
