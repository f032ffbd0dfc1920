"""Replicas, every fault at once, and kills: afterwards all that was answered must be true.

`SANDYARD_TORTURE_SEED` replays a run's choices; `SANDYARD_TORTURE_OPERATIONS` makes it longer.
"""

import asyncio
import os
import random
import time
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import httpx
import orjson
import pytest
from aiohttp import web

from sandyard.kit import ids
from tests.engines import STORE_ENGINES
from tests.faults.callers import Callers
from tests.faults.cluster import ADMIN_TOKEN, LEASE_MAX_SEC, Replica, replicas
from tests.faults.history import check
from tests.faults.rules import Limits, broken_rules
from tests.faults.stock import events_of, stock_of
from tests.faults.weather import FaultyEngine, faulty_engine
from tests.pools import check_history
from tests.servers import csp_simulator

SEED = int(os.environ.get("SANDYARD_TORTURE_SEED", "20"))
OPERATIONS = int(os.environ.get("SANDYARD_TORTURE_OPERATIONS", "200"))
LIMITS = Limits(longest_sec=LEASE_MAX_SEC, apart_ms=5000)
"""With every write so late, tickets that come so close to each other may change places."""
AT_FIRST, PER_OPERATION = 0.25, 0.15
"""How many sandboxes the pool has, and by how many it grows: fewer than are asked for."""
KEPT = 20
"""So many more are reserved for tracks that never come."""


async def listed_by(provider_url: str) -> list[str]:
    """The provider's ids, past its pages."""
    found: list[str] = []
    parameters: dict[str, Any] = {"limit": 500}
    async with httpx.AsyncClient(base_url=provider_url) as http:
        while True:
            page = (await http.get("/api/sandbox", params=parameters)).json()
            found += [entry["id"] for entry in page["sandboxes"]]
            if not page.get("next_cursor"):
                return found
            parameters["cursor"] = page["next_cursor"]


@dataclass(slots=True)
class Patients:
    """What answers for the sandboxes: some are ill for a while, and then well again."""

    external_ids: list[str]
    ill: set[str] = field(default_factory=set)
    url: str = ""

    async def answer(self, request: web.Request) -> web.Response:
        return web.Response(status=503 if request.match_info["id"] in self.ill else 200)

    async def change(self, rng: random.Random) -> None:
        while True:
            self.fall_ill(rng)
            await asyncio.sleep(4)
            self.ill = set()
            await asyncio.sleep(2)

    def fall_ill(self, rng: random.Random) -> None:
        self.ill = set(rng.sample(self.external_ids, len(self.external_ids) // 5))


@asynccontextmanager
async def probed(patients: Patients) -> AsyncIterator[Patients]:
    app = web.Application()
    app.router.add_get("/{id}", patients.answer)
    runner = web.AppRunner(app, shutdown_timeout=0.1)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    patients.url = f"http://127.0.0.1:{runner.addresses[0][1]}/{{external_id}}"
    try:
        yield patients
    finally:
        await runner.cleanup()


async def grow(provider_url: str, callers: Callers) -> None:
    """The provider makes more as time passes; a sync brings them in."""
    made = 0
    async with httpx.AsyncClient(base_url=provider_url, timeout=20) as http:
        while True:
            await asyncio.sleep(1)
            wanted = int(callers.done * PER_OPERATION)
            if wanted > made:
                await http.post("/_sim/sandboxes", json={"count": wanted - made})
                made = wanted


async def kill_now_and_then(
    servers: list[Replica], callers: Callers, rng: random.Random, killed: Counter[str]
) -> None:
    """By how much was done, not by time: a slow machine kills as often as a fast one."""
    while True:
        until = callers.done + min(OPERATIONS // 6, 100)
        while callers.done < until:
            await asyncio.sleep(0.02)
        victim = rng.choice(servers)
        victim.kill()
        killed["replicas"] += 1
        await asyncio.sleep(rng.uniform(0, 0.5))
        await victim.start()


async def change_weather(engine: FaultyEngine, rng: random.Random) -> None:
    while True:
        await engine.change(rng)


async def fill(server: Replica) -> None:
    """The provider's sandboxes are in the pool, and some of them kept for nobody who asks."""
    headers = {"Authorization": f"Bearer {ADMIN_TOKEN}"}
    async with httpx.AsyncClient(base_url=server.url, headers=headers, timeout=60) as http:
        assert (await http.post("/v1/admin/sync")).status_code == 200
        booked = {"count": KEPT, "track_prefix": "nobody-", "to": int(time.time()) + 24 * 3600}
        made = await http.post("/v1/admin/reservations", json=booked)
        assert made.json()["kept"] == KEPT, made.text


async def see_probes(server: Replica, patients: Patients, rng: random.Random) -> None:
    """Until one sandbox was quarantined by its probe and one restored, if that was not yet."""
    headers = {"Authorization": f"Bearer {ADMIN_TOKEN}"}
    async with httpx.AsyncClient(base_url=server.url, headers=headers, timeout=60) as http:

        async def is_told(kind: str) -> bool:
            wanted = {"kind": f"sandbox.{kind}", "actor": "job:probe", "limit": "1"}
            return bool((await http.get("/v1/admin/events", params=wanted)).json()["events"])

        async with asyncio.timeout(60):
            while not await is_told("quarantined"):
                patients.fall_ill(rng)
                await asyncio.sleep(3)
            patients.ill = set()
            while not await is_told("restored"):
                await asyncio.sleep(0.5)


@pytest.mark.timeout(120 + OPERATIONS)
@pytest.mark.parametrize("name", STORE_ENGINES)
async def test_what_was_answered_is_true_whatever_failed(
    name: str, postgres_url: str, dynamo_url: str, tmp_path: Path
) -> None:
    rng = random.Random(SEED)
    count = int(OPERATIONS * AT_FIRST) + KEPT
    killed: Counter[str] = Counter()
    with csp_simulator(tmp_path, "--count", str(count)) as provider_url:
        external_ids = await listed_by(provider_url)
        async with (
            probed(Patients(external_ids)) as patients,
            faulty_engine(
                name, postgres_url=postgres_url, dynamo_url=dynamo_url, seed=SEED
            ) as engine,
        ):
            environment = {
                **engine.environment,
                "CSP_BASE_URL": provider_url,
                "PROBE": patients.url,
            }
            async with replicas(
                engine.replicas, folder=tmp_path, environment=environment
            ) as servers:
                await fill(servers[0])
                callers = Callers(servers, [ids.sandbox_id(each) for each in external_ids], SEED)
                troubles = [
                    asyncio.create_task(change_weather(engine, rng)),
                    asyncio.create_task(kill_now_and_then(servers, callers, rng, killed)),
                    asyncio.create_task(patients.change(rng)),
                    asyncio.create_task(grow(provider_url, callers)),
                ]
                try:
                    await callers.run(OPERATIONS)
                finally:
                    await stopped(*troubles)
                    await engine.calm()
                await see_probes(servers[0], patients, rng)
            injected = await engine.injected()
            await check_all(engine, servers, callers, provider_url, tmp_path)
    assert killed["replicas"] >= 2
    assert all(times >= 10 for times in injected.values()), injected
    assert callers.done >= OPERATIONS
    assert callers.unanswered <= OPERATIONS // 20


async def check_all(
    engine: FaultyEngine,
    servers: list[Replica],
    callers: Callers,
    provider_url: str,
    folder: Path,
) -> None:
    callers.history.save(folder / "history.jsonl")
    async with engine.opened(servers) as store:
        stock, log = await stock_of(store), await events_of(store)
        lines = (orjson.dumps(asdict(each)) for each in log)
        (folder / "events.jsonl").write_bytes(b"\n".join(lines))
        problems = check(
            callers.history,
            stock,
            listed=await listed_by(provider_url),
            read_at=time.time(),
            longest_sec=LEASE_MAX_SEC,
        )
        problems += broken_rules(log, LIMITS)
        where = f"seed {SEED}, {len(problems)} problems, history and events in {folder}: "
        assert not problems, where + str(problems[:10])
        await check_history(store)
    check_mix(callers, Counter((each.event.kind, each.event.actor) for each in log))


def check_mix(callers: Callers, events: Counter[tuple[str, str]]) -> None:
    """That all of it took part: a run in which nothing happens is no proof."""
    answers = Counter((each.kind, each.status) for each in callers.history.attempts)
    assert answers["allocate", 201] >= OPERATIONS // 20, answers
    assert answers["allocate", 200] >= OPERATIONS // 50, answers
    for kind in ("extend", "replace"):
        assert answers[kind, 200] >= max(1, OPERATIONS // 500), answers
    assert answers["reserve", 201] >= max(1, OPERATIONS // 500), answers
    kinds = Counter(kind for kind, _ in events.elements())
    for kind in ("ticket.created", "ticket.ready", "ticket.served", "reservation.filled"):
        assert kinds[kind] >= 1, kinds
    assert events["sandbox.quarantined", "job:probe"] >= 1, events
    assert events["sandbox.restored", "job:probe"] >= 1, events


async def stopped(*tasks: asyncio.Task[None]) -> None:
    """End the troublemakers; a failure of theirs is the test's."""
    for task in tasks:
        task.cancel()
    for outcome in await asyncio.gather(*tasks, return_exceptions=True):
        assert isinstance(outcome, asyncio.CancelledError), outcome
