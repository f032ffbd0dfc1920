"""Status of previews while E2B is in trouble: in time, whatever is known."""

import asyncio
import sqlite3
import time
from contextlib import closing
from datetime import UTC, datetime, timedelta
from pathlib import Path
from statistics import quantiles
from typing import Any

import aiohttp

from benchmarks.loops import run
from benchmarks.previews import make_previews, previews_server, sign_up
from benchmarks.report import Figure, Measured, Say

_PROJECTS = 40
_CALLERS = 3
"""Of each project, at once."""
_ROUNDS = 3
_PAUSE_SEC = 0.5
_LIMIT_MS = 500
_OLD = timedelta(minutes=6)
_TROUBLES: dict[str, dict[str, Any]] = {
    "slow": {"kind": "slow", "seconds": 3},
    "limiting the rate (429)": {"kind": "rate_limited", "retry_after": 2},
    "away": {"kind": "hang"},
    "cut off": {"kind": "drop_after"},
    "saying late that they are gone": {"kind": "slow", "seconds": 1},
}


def measure(folder: Path, say: Say) -> Measured:
    with previews_server(folder) as (url, e2b, _):
        return run(_measure(url, e2b, folder / "data", say))


async def _measure(url: str, e2b: str, data: Path, say: Say) -> Measured:
    figures = []
    async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0)) as session:

        async def call(method: str, path: str, body: Any = None, **headers: str) -> Any:
            async with session.request(method, url + path, json=body, headers=headers) as answer:
                if answer.status >= 300:
                    raise RuntimeError(f"{path}: {answer.status} {await answer.text()}")
                return await answer.json()

        key = await sign_up(call, data)
        projects = await make_previews(call, key, _PROJECTS)

        async def ask(project: str) -> tuple[float, str]:
            """How long it took in milliseconds, and what was answered."""
            path, started = f"{url}/projects/{project}/sandbox/status", time.perf_counter()
            async with session.get(path, headers=key) as answer:
                body = await answer.json()
            took_ms = (time.perf_counter() - started) * 1000
            if answer.headers.get("Retry-After") != _text(body["retry_after"]):
                raise RuntimeError("Retry-After differs in body and header")
            return took_ms, "stale" if body["stale"] else body["status"]

        for trouble, fault in _TROUBLES.items():
            async with session.put(f"{e2b}/_double/faults", json=[fault]):
                pass
            known = [(timedelta(0), "stale"), (_OLD, "unknown")]
            if "gone" in trouble:
                await _end_all(session, e2b)
                del known[0]
            answers = []
            for age, expected in known:
                await asyncio.to_thread(_report_at, data, datetime.now(UTC) - age)
                first = await asyncio.gather(*(ask(each) for each in projects * _CALLERS))
                if (found := {status for _, status in first}) != {expected}:
                    raise RuntimeError(f"{trouble}: {found} instead of {expected}")
                answers += first
                for _ in range(_ROUNDS - 1):
                    await asyncio.sleep(_PAUSE_SEC)
                    answers += await asyncio.gather(*(ask(each) for each in projects * _CALLERS))
            p99 = quantiles([took_ms for took_ms, _ in answers], n=100)[98]
            say(f"preview-troubles: {trouble}, p99 {p99:.0f} ms")
            figures.append(
                Figure.below(f"status while E2B is {trouble}, p99", p99, _LIMIT_MS, "ms")
            )
    return Measured(figures, f"previews {_PROJECTS}, callers {_PROJECTS * _CALLERS} at once")


def _text(seconds: int | None) -> str | None:
    return None if seconds is None else str(seconds)


def _report_at(data: Path, at: datetime) -> None:
    """As if the provider had last reported all previews then."""
    with closing(sqlite3.connect(data / "previews.db", timeout=20)) as connection, connection:
        text = at.isoformat(timespec="microseconds").replace("+00:00", "Z")
        connection.execute("UPDATE previews SET last_checked = ?", (text,))


async def _end_all(session: aiohttp.ClientSession, e2b: str) -> None:
    async with session.get(f"{e2b}/_double") as answer:
        found = (await answer.json())["sandboxes"]
    for box in found:
        async with session.delete(f"{e2b}/_double/sandboxes/{box['sandboxID']}"):
            pass
