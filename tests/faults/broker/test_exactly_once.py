"""Four replicas, every fault at once, and kills: afterwards all that was answered must be true.

`SANDYARD_TORTURE_SEED` replays a run's choices; `SANDYARD_TORTURE_OPERATIONS` makes it longer.
"""

import asyncio
import os
import random
import time
from collections import Counter
from pathlib import Path
from typing import Any

import httpx
import pytest

from sandyard.broker.stores.dynamo_table import PoolTable
from sandyard.broker.stores.dynamodb import DynamoPoolStore
from sandyard.kit import ids
from sandyard.kit.clock import SystemClock
from tests.faults.callers import Callers
from tests.faults.cluster import Proxy, Replica, proxy_process, replicas
from tests.faults.history import check
from tests.faults.stores import whole_table
from tests.pools import check_history
from tests.servers import csp_simulator

SEED = int(os.environ.get("SANDYARD_TORTURE_SEED", "20"))
OPERATIONS = int(os.environ.get("SANDYARD_TORTURE_OPERATIONS", "2200"))
FAULTS = {"reset": 0.02, "throttle": 0.04, "error": 0.02, "cancel": 0.04, "drop": 0.04}
STORM = {"reset": 0.3, "throttle": 0.3, "error": 0.2, "cancel": 0.5, "drop": 0.3}


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


async def until_full(pool: PoolTable, count: int) -> None:
    async with asyncio.timeout(60):
        while len(rows := await whole_table(pool.table)) < count:
            await asyncio.sleep(0.3)
    assert sum(item["PK"].startswith("SBX#") for item in rows) <= count


async def change_weather(proxy: Proxy, rng: random.Random) -> None:
    """Other faults every moment: a storm, short and long delays, an index more or less late."""
    while True:
        faults = STORM if rng.random() < 0.15 else FAULTS
        delay_sec = rng.choice([0.1, 0.4, 3.5])
        await proxy.set(
            **faults,
            delay=0.04 if delay_sec < 1 else 0.01,
            delay_sec=delay_sec,
            index_lag_sec=rng.uniform(1, 3),
        )
        await asyncio.sleep(1)


async def kill_now_and_then(
    servers: list[Replica], rng: random.Random, killed: Counter[str]
) -> None:
    while True:
        await asyncio.sleep(rng.uniform(1.5, 3))
        victim = rng.choice(servers)
        victim.kill()
        killed["replicas"] += 1
        await asyncio.sleep(rng.uniform(0, 0.5))
        await victim.start()


@pytest.mark.timeout(120 + OPERATIONS)
async def test_what_was_answered_is_true_whatever_failed(
    dynamo_url: str, pool: PoolTable, tmp_path: Path
) -> None:
    rng = random.Random(SEED)
    count = OPERATIONS // 2
    killed: Counter[str] = Counter()
    with csp_simulator(tmp_path, "--count", str(count)) as provider_url:
        names = [ids.sandbox_id(each) for each in await listed_by(provider_url)]
        async with proxy_process(dynamo_url, seed=SEED) as proxy:
            async with replicas(
                4,
                folder=tmp_path,
                engine_url=proxy.url,
                table=pool.names.table,
                provider_url=provider_url,
            ) as servers:
                await until_full(pool, count)
                weather = asyncio.create_task(change_weather(proxy, rng))
                killer = asyncio.create_task(kill_now_and_then(servers, rng, killed))
                callers = Callers(servers, names, SEED)
                try:
                    await callers.run(OPERATIONS)
                finally:
                    await stopped(killer, weather)
                    await proxy.set(**dict.fromkeys(FAULTS, 0), delay=0, index_lag_sec=0)
            await proxy.settle()
            seen = await proxy.look()
        listed = await listed_by(provider_url)
    callers.history.save(tmp_path / "history.jsonl")
    table = await whole_table(pool.table)
    problems = check(callers.history, table, listed=listed, read_at=time.time())
    assert not problems, f"seed {SEED}, {len(problems)} problems, history in {tmp_path}: " + str(
        problems[:10]
    )
    await check_history(DynamoPoolStore(pool, clock=SystemClock(), prefetch_size=1))
    assert killed["replicas"] >= 3
    assert all(seen["total"]["injected"][kind] >= 10 for kind in FAULTS), seen["total"]
    assert callers.done >= OPERATIONS
    assert callers.unanswered <= OPERATIONS // 20
    answers = Counter((each.kind, each.status) for each in callers.history.attempts)
    assert answers["allocate", 201] >= OPERATIONS // 5, answers
    assert answers["allocate", 200] >= OPERATIONS // 20, answers


async def stopped(*tasks: asyncio.Task[None]) -> None:
    """End the troublemakers; a failure of theirs is the test's."""
    for task in tasks:
        task.cancel()
    for outcome in await asyncio.gather(*tasks, return_exceptions=True):
        assert isinstance(outcome, asyncio.CancelledError), outcome
