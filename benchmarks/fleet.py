"""What a fleet of sandboxes costs a server: Pods on 1,000 nodes at a simulated API server,
and as many running sandboxes in the real store. FLEET_RUNS changes the number."""

import asyncio
import os
import sys
import time
from asyncio.subprocess import PIPE
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from statistics import median

import httpx
import psutil
import sqlalchemy as sa

from benchmarks.fleet_cluster import NODES
from benchmarks.loops import run
from benchmarks.platform import FIRST_AT, MADE, migrated, settle
from benchmarks.report import Figure, Measured, Say
from sandyard.kit.clock import SystemClock
from sandyard.platform.events.entities import platform_transitions
from sandyard.platform.sandboxes.runs.jobs import Reconcile
from sandyard.platform.sandboxes.sql.store import SqlSandboxStore
from sandyard.runtime.kubernetes.api import ApiAddress, KubernetesApi
from sandyard.runtime.kubernetes.informer import Informer
from sandyard.runtime.kubernetes.machines import KubernetesMachines
from sandyard.runtime.kubernetes.manifest import PodImage, PodOptions
from sandyard.runtime.model import MachineSpec, RunId
from sandyard.runtime.ports import Runtime
from sandyard.runtime.programs.runner import ProgramRunner
from sandyard.runtime.programs.start import ProgramTimeouts
from sandyard.runtime.store.archives import ArchiveFolder
from tests.support.clocks import RunningClock
from tests.support.platform.in_process import PlatformApi, platform_api
from tests.support.platform.sandboxes import add_template
from tests.support.runtime.programs import LIMITS, new_run_id
from tests.support.storage.engines import postgres_server

_RUNS = int(os.environ.get("FLEET_RUNS", "20000"))
_CHANGES, _FOUND = 20_000, 1_000
_STARTS, _AT_ONCE = 200, 16
_CHANGED = 100
"""Runs that end."""
_FILL = """
INSERT INTO platform.sandboxes (sandbox_id, name, template_id, owner_account_id, status, node,
    attempt, created_at, updated_at, started_at, timeout_at, last_seen_at)
{made}
SELECT 'sbx-' || substr(CAST(1000000000000 + n AS text), 2), 'box ' || n, :template, :account,
    'running', :node, 1, at, at, at, at, at
FROM made
"""


def measure(folder: Path, say: Say) -> Measured:
    with postgres_server(folder / "postgres") as postgres_url:
        figures = run(_cluster(folder, postgres_url, say))
    return Measured(figures, f"{_RUNS:,} runs on {NODES:,} simulated nodes")


@dataclass(frozen=True, slots=True)
class _Spent:
    """Seconds, and those that this process computed."""

    wall: float
    cpu: float

    @classmethod
    async def of(cls, work: Callable[[], Awaitable[object]]) -> "_Spent":
        wall, cpu = time.perf_counter(), time.process_time()
        await work()
        return cls(time.perf_counter() - wall, time.process_time() - cpu)

    def shown(self, count: int = 1) -> str:
        """For each of so many."""
        return f"{self.wall / count * 1000:.2f} ms, of which {self.cpu / count * 1000:.2f} ms CPU"


async def _cluster(folder: Path, postgres_url: str, say: Say) -> list[Figure]:
    async with _simulated() as (url, fleet):
        say(f"fleet: filling a cluster with {_RUNS:,} Pods")
        await fleet.post("/fill", params={"runs": _RUNS})
        figures = await _follow(KubernetesApi(ApiAddress(url, "sandboxes")), fleet, say)
        snapshots = ArchiveFolder(folder / "snapshots")
        options = PodOptions("sandyard:agent", PodImage("debian:bookworm"))
        api = KubernetesApi(ApiAddress(url, "sandboxes"))
        machines = KubernetesMachines(api, options, snapshots, clock=SystemClock())
        clock = RunningClock()
        try:
            figures += await _run(machines, fleet, say)
            timeouts = ProgramTimeouts()
            runtime = ProgramRunner(machines, machines.records, snapshots, timeouts, clock)
            for number, title in enumerate(("SQLite", "PostgreSQL")):
                store = _Store(title, folder, runtime, fleet, say)
                figures += await store.measure(
                    postgres_url if number else None, ends_from=number * _CHANGED
                )
            return figures
        finally:
            await machines.close()


async def _follow(api: KubernetesApi, fleet: httpx.AsyncClient, say: Say) -> list[Figure]:
    pods, secrets = Informer(api, "pods"), Informer(api, "secrets")

    async def list_all() -> None:
        await asyncio.gather(pods.synced(), secrets.synced())

    async def follow() -> None:
        last = (await fleet.post("/change", params={"changes": _CHANGES})).json()
        while pods.objects[last["name"]]["metadata"]["resourceVersion"] != last["version"]:
            await pods.changed()

    say(f"fleet: the first list of {_RUNS:,} Pods and Secrets")
    before = psutil.Process().memory_info().rss
    try:
        listed = await _Spent.of(list_all)
        grown = psutil.Process().memory_info().rss - before
        say(f"fleet: {_CHANGES:,} changes")
        followed = await _Spent.of(follow)
    finally:
        for each in (pods, secrets, api):
            await each.close()
    return [
        Figure(f"first list of {_RUNS:,} Pods and Secrets", f"{listed.wall:.1f} s"),
        Figure("  memory of it in each server", f"{grown / 2**20:,.0f} MB"),
        Figure("  for one run", f"{grown / _RUNS / 1024:.1f} kB"),
        Figure("one change, followed", followed.shown(_CHANGES)),
    ]


async def _run(machines: KubernetesMachines, fleet: httpx.AsyncClient, say: Say) -> list[Figure]:
    await machines.check()
    some = [
        RunId("sandbox", f"sbx-{n:012d}", "1") for n in range(0, _RUNS, max(1, _RUNS // _FOUND))
    ]

    async def find() -> None:
        for each in some:
            if await machines.find(each) is None:
                raise RuntimeError(f"{each} is not known")

    found = await _Spent.of(find)
    all_ids = await _Spent.of(lambda: machines.run_ids("sandbox"))
    say(f"fleet: {_STARTS} starts, {_AT_ONCE} at once")
    await fleet.get("/sent")
    begun = [new_run_id() for _ in range(_STARTS)]
    spec = MachineSpec(LIMITS, 3600)
    starts = await _Spent.of(lambda: _at_once(begun, lambda each: machines.create(each, spec)))
    sent = Counter((await fleet.get("/sent")).json())
    refreshed = await _Spent.of(lambda: _in_turn(begun, machines.refresh))
    say(f"fleet: {_STARTS} ends")

    async def end(run_id: RunId) -> None:
        await machines.stop(run_id)
        await machines.refresh(run_id)

    ends = await _Spent.of(lambda: _at_once(begun, end))
    ended = Counter((await fleet.get("/sent")).json())
    return [
        Figure("one lookup", found.shown(len(some))),
        Figure("the ids of all runs", all_ids.shown()),
        Figure(f"one start, {_AT_ONCE} at once", starts.shown(_STARTS)),
        *(Figure(f"  {call}", f"{times / _STARTS:.1f}") for call, times in sorted(sent.items())),
        Figure("one refresh, which asks the agent", refreshed.shown(_STARTS)),
        Figure(f"one end, {_AT_ONCE} at once", ends.shown(_STARTS)),
        *(Figure(f"  {call}", f"{times / _STARTS:.1f}") for call, times in sorted(ended.items())),
    ]


async def _at_once(run_ids: list[RunId], work: Callable[[RunId], Awaitable[object]]) -> None:
    waiting = iter(run_ids)

    async def some() -> None:
        await _in_turn(waiting, work)

    await asyncio.gather(*(some() for _ in range(_AT_ONCE)))


async def _in_turn(run_ids: Iterable[RunId], work: Callable[[RunId], Awaitable[object]]) -> None:
    for each in run_ids:
        await work(each)


@asynccontextmanager
async def _simulated() -> AsyncIterator[tuple[str, httpx.AsyncClient]]:
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "benchmarks.fleet_cluster"), stdin=PIPE, stdout=PIPE
    )
    try:
        port = int(await (process.stdout or asyncio.StreamReader()).readline())
        url = f"http://127.0.0.1:{port}"
        async with httpx.AsyncClient(base_url=url, timeout=600) as client:
            yield url, client
    finally:
        process.kill()
        await process.wait()


@dataclass(frozen=True, slots=True)
class _Store:
    title: str
    folder: Path
    runtime: Runtime
    fleet: httpx.AsyncClient
    say: Say

    async def measure(self, postgres_url: str | None, *, ends_from: int) -> list[Figure]:
        self.say(f"fleet: {self.title}, storing {_RUNS:,} running sandboxes")
        data_dir = self.folder / self.title
        data_dir.mkdir()
        url = await migrated(postgres_url) if postgres_url else None
        async with platform_api(url, data_dir, RunningClock(), runtime=self.runtime) as api:
            node, database = api.part.wired.node, api.part.database
            await _fill(api, node)
            if url:
                await settle(url)
            store = SqlSandboxStore(database, platform_transitions(database))
            figures = await self._queries(store, node)
            return figures + await self._rounds(api, ends_from)

    async def _queries(self, store: SqlSandboxStore, node: str) -> list[Figure]:
        self.say(f"fleet: {self.title}, the queries of one reconciliation")
        now = datetime.now(UTC)
        ids = [each.sandbox_id for each in await store.active_runs(node)]
        queries: list[tuple[str, Callable[[], Awaitable[object]]]] = [
            ("all that are active here, whole", lambda: store.active_on(node)),
            ("what is looked at of them", lambda: store.active_runs(node)),
            ("when they were seen", lambda: store.note_seen(ids, at=datetime.now(UTC))),
            ("of accounts that are not active", lambda: store.active_of_deactivated(node)),
            ("what is to be recycled", lambda: store.to_recycle(node, now=now)),
            ("on silent nodes", lambda: store.active_elsewhere(node, unseen_since=now)),
            ("the counts", lambda: store.count_active(unseen_since=now - timedelta(hours=1))),
        ]
        return [
            Figure(f"{self.title}: {what}", (await _median(query)).shown())
            for what, query in queries
        ]

    async def _rounds(self, api: PlatformApi, ends_from: int) -> list[Figure]:
        """Of the job `ends`, as it runs in a server."""
        self.say(f"fleet: {self.title}, rounds of the job that records ends")
        wired = api.part.wired
        node = wired.recorder._node  # noqa: SLF001 - as the part has wired it
        reconcile = Reconcile(node, wired.sandboxes, wired.recorder)

        async def rounds_until_all_ended() -> None:
            ended = 0
            while ended < _CHANGED:
                ended += (await reconcile.collect_ends()).closed

        first = await _Spent.of(reconcile.collect_ends)
        quiet = await _median(reconcile.collect_ends)
        ends = {"begin": ends_from, "end": ends_from + _CHANGED}
        (await self.fleet.post("/end", params=ends)).raise_for_status()
        ended = await _Spent.of(rounds_until_all_ended)
        return [
            Figure(f"{self.title}: the first round of the job", first.shown()),
            Figure("  one in which nothing happened", quiet.shown()),
            Figure(f"  {_CHANGED} ends, until all are recorded", ended.shown()),
        ]


async def _fill(api: PlatformApi, node: str) -> None:
    database = api.part.database
    values = {
        "rows": _RUNS,
        "first": FIRST_AT,
        "account": (await api.account()).account_id,
        "template": await add_template(api),
        "node": node,
    }
    statement = sa.text(_FILL.format(made=MADE[database.name]))
    await database.write(lambda connection: connection.execute(statement, values))


async def _median(query: Callable[[], Awaitable[object]]) -> _Spent:
    spent = [await _Spent.of(query) for _ in range(3)]
    return _Spent(median(each.wall for each in spent), median(each.cpu for each in spent))
