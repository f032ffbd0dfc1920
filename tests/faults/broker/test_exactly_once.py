"""Replicas, every fault at once, and kills: afterwards all that was answered must be true.

`SANDYARD_TORTURE_SEED` replays a run's choices; `SANDYARD_TORTURE_OPERATIONS` makes it longer.
"""

import asyncio
import os
import random
import time
from pathlib import Path
from typing import Any

import httpx
import pytest

from sandyard.broker.probes.model import UNPROBED_SEC
from sandyard.kit import ids
from tests.faults.callers import Callers
from tests.faults.cluster import (
    ADMIN_TOKEN,
    LEASE_MAX_SEC,
    MOST_EXTENSIONS,
    TICKET_TTL_SEC,
    Replica,
    replicas,
    sync_at,
)
from tests.faults.event_log_rules import unprobed
from tests.faults.history import ASKING, History
from tests.faults.pool_contents import events_of, stock_of
from tests.faults.queue_observer import Sightings
from tests.faults.random_faults import FaultyEngine, faulty_engine
from tests.faults.run_coverage import PROBED, Mix
from tests.faults.server_faults import Kills, ProbedSandboxes, beside, grow, probed
from tests.histories.evidence import PoolEvidence, save
from tests.histories.judge import Limits
from tests.support.broker.pools import check_history
from tests.support.servers.processes import csp_simulator
from tests.support.storage.engines import STORE_ENGINES

SEED = int(os.environ.get("SANDYARD_TORTURE_SEED", "20"))
OPERATIONS = int(os.environ.get("SANDYARD_TORTURE_OPERATIONS", "120"))
AT_FIRST = min(OPERATIONS, 400) // 4
PER_OPERATION = 0.4 - AT_FIRST / OPERATIONS
"""How many sandboxes the pool has, and by how many it grows: fewer than are asked for. A long
run has no larger pool, which would only be probed for longer."""
KEPT = 20
"""So many more are reserved for tracks that never come."""
WANTED = {
    ("allocate", 201): OPERATIONS // 20,
    ("allocate", 200): OPERATIONS // 50,
    ("extend", 200): max(1, OPERATIONS // 500),
    ("reserve", 201): max(1, OPERATIONS // 500),
    **({("replace", 200): OPERATIONS // 500} if OPERATIONS >= 500 else {}),
}
"""How often each must have been answered, at least. In a short run those who wait may take all that
one could be replaced by."""


async def listed_by(provider_url: str) -> list[str]:
    """The provider's ids, past its pages."""
    found: list[str] = []
    parameters: dict[str, Any] = {"limit": 500}
    async with httpx.AsyncClient(base_url=provider_url, timeout=60) as http:
        while True:
            page = (await http.get("/api/sandbox", params=parameters)).json()
            found += [entry["id"] for entry in page["sandboxes"]]
            if not page.get("next_cursor"):
                return found
            parameters["cursor"] = page["next_cursor"]


async def know_new_ones(
    provider_url: str, callers: Callers, probed_sandboxes: ProbedSandboxes
) -> None:
    """Operators act on what there is now, and that falls ill, as the pool grows."""
    while True:
        await asyncio.sleep(5)
        probed_sandboxes.external_ids = await listed_by(provider_url)
        callers.sandbox_ids = [ids.sandbox_id(each) for each in probed_sandboxes.external_ids]


async def change_engine_faults(engine: FaultyEngine, rng: random.Random) -> None:
    while True:
        await engine.change(rng)


async def fill(server: Replica) -> None:
    """The provider's sandboxes are in the pool, and some of them kept for nobody who asks."""
    await sync_at(server)
    headers = {"Authorization": f"Bearer {ADMIN_TOKEN}"}
    async with httpx.AsyncClient(base_url=server.url, headers=headers, timeout=120) as http:
        booked = {"count": KEPT, "track_prefix": "nobody-", "to": int(time.time()) + 24 * 3600}
        made = await http.post("/v1/admin/reservations", json=booked)
        assert made.json()["kept"] == KEPT, made.text


@pytest.mark.timeout(300 + OPERATIONS)
@pytest.mark.parametrize(
    "name",
    [
        "dynamodb",  # the simulation has the others' store adapter
        *(
            pytest.param(each, marks=pytest.mark.torture)
            for each in STORE_ENGINES
            if each != "dynamodb"
        ),
    ],
)
async def test_what_was_answered_is_true_whatever_failed(
    name: str, postgres_url: str, dynamo_url: str, tmp_path: Path
) -> None:
    with csp_simulator(tmp_path, "--count", str(AT_FIRST + KEPT)) as provider_url:
        external_ids = await listed_by(provider_url)
        async with (
            probed(ProbedSandboxes(external_ids)) as probed_sandboxes,
            faulty_engine(
                name, postgres_url=postgres_url, dynamo_url=dynamo_url, seed=SEED
            ) as engine,
        ):
            probe = {"PROBE": probed_sandboxes.url, "PROBE_AT_CLAIM": "true"}
            settings = {"CSP_BASE_URL": provider_url, **probe}
            async with replicas(
                engine.replicas, folder=tmp_path, environment={**engine.environment, **settings}
            ) as servers:
                await fill(servers[0])
                callers = Callers(servers, [ids.sandbox_id(each) for each in external_ids], SEED)
                sightings = Sightings()
                async with beside(sightings.watch(servers)):
                    missing = await run_with_troubles(
                        callers, engine, probed_sandboxes, provider_url
                    )
            await check_all(engine, servers, callers, sightings, provider_url, tmp_path)
    assert not missing, f"{callers.done} operations and never: {missing}"


async def run_with_troubles(
    callers: Callers, engine: FaultyEngine, probed_sandboxes: ProbedSandboxes, provider_url: str
) -> list[str]:
    """All operations, and as many more as it takes until all of the mix was met; what was not."""
    rng = random.Random(SEED)
    kills = Kills(callers.replicas, every=min(OPERATIONS // 3, 100))
    mix = Mix(WANTED, callers.history, lambda: kills.total, await engine.injected())
    async with beside(
        mix.watch(callers.replicas, engine.injected), probed_sandboxes.change(rng, mix)
    ):
        async with beside(
            change_engine_faults(engine, rng),
            kills.go_on(rng, lambda: callers.done),
            grow(provider_url, lambda: int(callers.done * PER_OPERATION)),
            know_new_ones(provider_url, callers, probed_sandboxes),
        ):
            await callers.run(
                OPERATIONS, goes_on=lambda: bool(mix.missing()), at_most=8 * OPERATIONS
            )
        await engine.calm()
        await kills.bring_back()
        await mix.until_told(PROBED)
    return mix.missing()


def told_at_once(history: History) -> set[str]:
    """The sandboxes that tracks were told of before a lease counts as heard of in any case."""
    return {
        each.body["sandbox_id"]
        for each in history.of(*ASKING, "replace")
        if each.is_lease and each.answered_at < each.body["allocated_at"] + UNPROBED_SEC / 2
    }


async def check_all(
    engine: FaultyEngine,
    servers: list[Replica],
    callers: Callers,
    sightings: Sightings,
    provider_url: str,
    folder: Path,
) -> None:
    async with engine.opened(servers) as store:
        evidence = PoolEvidence(
            callers.history,
            Limits(0.1, has_probes=True, most_extensions=MOST_EXTENSIONS),
            await stock_of(store),
            await events_of(store),
            listed=await listed_by(provider_url),
            read_at=time.time(),
            longest_sec=LEASE_MAX_SEC,
            ticket_ttl_sec=TICKET_TTL_SEC,
            sightings=sightings,
        )
        save(evidence, folder)
        problems = evidence.problems() + unprobed(evidence.log, told_at_once(callers.history))
        where = f"seed {SEED}, {len(problems)} problems, history and events in {folder}: "
        assert not problems, where + str(problems[:10])
        await check_history(store)
