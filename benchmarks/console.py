"""Every screen of the console on a large site, and what many open consoles cost."""

import asyncio
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from threading import Event, Thread

import httpx
import psutil

from benchmarks.report import Figure, Measured, Say
from tests.e2e.console.people import ADMIN, open_accounts
from tests.e2e.console.screens import make_one_of_each, screens_of
from tests.e2e.console.sessions import ConsoleSession, session_of
from tests.support.servers.processes import ServerProcess, sandyard_serve
from tests.support.storage.large_data_dirs import Crowd

_CROWD = Crowd(pool=100_000, sandboxes=1_000, devices=10_000)
_LIMIT_SEC = 0.5
_LIMIT_KB = 200
_ROUNDS = 5
_OPEN = 200
_SECONDS = 10
_OPEN_SECONDS = 60
"""Each of them is told of a change four times or more."""
_SETTLE_SEC = 15
"""Until what happened before they were open is told."""
_VIEW = "pool"
"""What the page of the pool asks for again when it is told of a change, and now and then."""
_REFRESHED_EVERY_SEC = 120
_MOST_OF_A_CORE = 10


@dataclass(frozen=True, slots=True)
class _Screen:
    path: str
    seconds: float
    cpu_seconds: float
    kilobytes: float


def measure(folder: Path, say: Say) -> Measured:
    say("console: storing a large site")
    with sandyard_serve(folder / "data") as server:
        open_accounts(server)
        make_one_of_each(server, session_of(server, ADMIN))
    _CROWD.fill(folder / "data", ADMIN)
    began = int(time.time())
    with sandyard_serve(folder / "data") as server:
        session = session_of(server, ADMIN)
        _wait_for_first_sync(session, began)
        screens = [_measured(server, session, path, say) for path in screens_of(session)]
        figures = _of_screens(screens)
        figures += _of_many(server, session, say)
    shown = f"{_CROWD.pool:,} pool, {_CROWD.sandboxes:,} sandboxes, {_CROWD.devices:,} devices"
    return Measured(figures, shown)


def _wait_for_first_sync(session: ConsoleSession, began: float) -> None:
    """It compares the whole pool with the provider's list, and is no part of a screen."""
    while True:
        jobs = session.call("GET", "/v1/admin/jobs").json()["jobs"]
        if all(each["finished_at"] >= began for each in jobs if each["name"] == "sync"):
            return
        time.sleep(0.2)


def _measured(server: ServerProcess, session: ConsoleSession, path: str, say: Say) -> _Screen:
    say(f"console: {path}")
    process = psutil.Process(server.process.pid)
    times: list[float] = []
    before = _cpu(process)
    for _ in range(_ROUNDS):
        started = time.perf_counter()
        answer = session.get(path).raise_for_status()
        times.append(time.perf_counter() - started)
    used = (_cpu(process) - before) / _ROUNDS
    return _Screen(path, median(times), used, len(answer.content) / 1000)


def _cpu(process: psutil.Process) -> float:
    times = process.cpu_times()
    return float(times.user + times.system)


def _of_screens(screens: Sequence[_Screen]) -> list[Figure]:
    slowest = max(screens, key=lambda each: each.seconds)
    dearest = max(screens, key=lambda each: each.cpu_seconds)
    largest = max(screens, key=lambda each: each.kilobytes)
    return [
        Figure.below(f"slowest screen ({slowest.path})", slowest.seconds, _LIMIT_SEC, "s"),
        Figure(f"  most CPU ({dearest.path})", f"{dearest.cpu_seconds * 1000:.0f} ms"),
        Figure.below(f"largest screen ({largest.path})", largest.kilobytes, _LIMIT_KB, "kB"),
    ]


def _of_many(server: ServerProcess, session: ConsoleSession, say: Say) -> list[Figure]:
    """Of consoles that all show the pool, while it changes all the time."""
    process = psutil.Process(server.process.pid)
    with _leasing(server):
        say(f"console: {_SECONDS} s of leases, with nobody")
        alone = _share(process, _SECONDS)
        say(f"console: {_OPEN_SECONDS} s of leases, with {_OPEN} open")
        share, asked = asyncio.run(_with_many(process, session))
    what = f"{_OPEN} open consoles that show a pool that changes"
    return [
        Figure.below(f"CPU of {what}", share - alone, _MOST_OF_A_CORE, "% of a core"),
        Figure("  views that they ask for", f"{asked / _OPEN_SECONDS:.1f} a second"),
        Figure("  each is told of a change every", f"{_OPEN * _OPEN_SECONDS / asked:.0f} s"),
    ]


async def _with_many(process: psutil.Process, session: ConsoleSession) -> tuple[float, int]:
    """The server's share of a core while they are open, and how many views they asked for."""
    limits = httpx.Limits(max_connections=None, max_keepalive_connections=None)
    async with (
        httpx.AsyncClient(
            base_url=session.url, headers=session.headers, limits=limits, timeout=60
        ) as client,
        asyncio.TaskGroup() as group,
    ):
        consoles = [_OpenConsole(client) for _ in range(_OPEN)]
        tasks = [group.create_task(each.run(number)) for number, each in enumerate(consoles)]
        await asyncio.gather(*(each.is_open.wait() for each in consoles))
        await asyncio.sleep(_SETTLE_SEC)
        before, asked = _cpu(process), sum(each.asked for each in consoles)
        await asyncio.sleep(_OPEN_SECONDS)
        share = (_cpu(process) - before) / _OPEN_SECONDS * 100
        asked = sum(each.asked for each in consoles) - asked
        for task in tasks:
            task.cancel()
    return share, asked


class _OpenConsole:
    """The page of the pool, as a browser has it."""

    def __init__(self, client: httpx.AsyncClient) -> None:
        self._client = client
        self.is_open = asyncio.Event()
        self.asked = 0

    async def run(self, number: int) -> None:
        async with asyncio.TaskGroup() as group:
            group.create_task(self._refresh(number))
            async with self._client.stream("GET", "/console/live") as stream:
                self.is_open.set()
                async for line in stream.aiter_lines():
                    if line == "event: broker":
                        await self._ask()

    async def _refresh(self, number: int) -> None:
        await asyncio.sleep(_REFRESHED_EVERY_SEC * number / _OPEN)
        while True:
            await self._ask()
            await asyncio.sleep(_REFRESHED_EVERY_SEC)

    async def _ask(self) -> None:
        headers = {"HX-Request": "true", "HX-Target": _VIEW}
        (await self._client.get("/console/labs", headers=headers)).raise_for_status()
        self.asked += 1


@contextmanager
def _leasing(server: ServerProcess) -> Iterator[None]:
    """A lease every half second."""
    has_ended = Event()

    def lease() -> None:
        while not has_ended.wait(0.5):
            headers = server.track | {"X-Track-ID": f"bench-{time.monotonic_ns()}"}
            httpx.post(f"{server.url}/v1/allocate", headers=headers, timeout=30)

    thread = Thread(target=lease)
    thread.start()
    yield
    has_ended.set()
    thread.join()


def _share(process: psutil.Process, seconds: float) -> float:
    """In percent of a core."""
    before = _cpu(process)
    time.sleep(seconds)
    return (_cpu(process) - before) / seconds * 100
