"""A class larger than the pool: all wait in their calls, through growth and `kill -9`."""

import asyncio
import random
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import aiohttp
import httpx
import pytest

from sandyard.broker.pool.ports import PoolStore
from sandyard.broker.verification import verify
from tests.faults.cluster import ADMIN_TOKEN, TRACK_TOKEN, Replica, replicas, sync_at
from tests.faults.pool_contents import events_of
from tests.faults.random_faults import faulty_engine
from tests.support.broker.pools import check_invariants, everything
from tests.support.servers.processes import csp_simulator
from tests.support.storage.engines import STORE_ENGINES

PATIENT = {
    "LAB_DURATION_HOURS": "4",
    "LEASE_MAX_HOURS": "24",
    "QUEUE_TICKET_TTL_SEC": "300",
    "JOB_LEASE_SEC": "10",
}
"""Nobody loses its place or its lease because the machine is slow."""


@dataclass(frozen=True, slots=True)
class Size:
    callers: int
    free: int
    growth: int
    """Twice: in the end there is one for each."""

    @property
    def waiting(self) -> int:
        return self.callers - self.free


SMALL, LARGE = Size(100, 60, 20), Size(1000, 600, 200)
CASES = [
    pytest.param("postgresql", SMALL, id="postgresql-100"),
    *(
        pytest.param(name, LARGE, id=f"{name}-1000", marks=pytest.mark.torture)
        for name in STORE_ENGINES
    ),
]


@dataclass(slots=True)
class Class:
    """Each asks until it has a sandbox, as a good client does: with the same track, and waiting;
    at another server, if its own does not answer."""

    size: Size
    servers: list[Replica]
    provider: str
    leases: dict[str, dict[str, Any]] = field(default_factory=dict)
    new: Counter[str] = field(default_factory=Counter)
    """How often each was told that its lease is new."""

    async def ask(self) -> None:
        timeout = aiohttp.ClientTimeout(total=None)
        connector = aiohttp.TCPConnector(limit=0)
        async with (
            aiohttp.ClientSession(connector=connector, timeout=timeout) as http,
            asyncio.TaskGroup() as group,
        ):
            for number in range(self.size.callers):
                group.create_task(self._insist(http, f"t{number}", random.Random(number)))

    async def _insist(self, http: aiohttp.ClientSession, track: str, rng: random.Random) -> None:
        token = {"Authorization": f"Bearer {TRACK_TOKEN}"}
        headers = token | {"X-Track-ID": track, "Prefer": "wait=20"}
        while track not in self.leases:
            try:
                url = rng.choice(self.servers).url + "/v1/allocate"
                async with http.post(url, headers=headers) as answer:
                    if answer.status in (200, 201):
                        self.new[track] += answer.status == 201
                        self.leases[track] = await answer.json()
                    else:
                        assert answer.status in (409, 503), await answer.text()
            except aiohttp.ClientError:
                await asyncio.sleep(0.2)

    async def until(self, is_so: Callable[[], bool]) -> None:
        while not is_so():
            await asyncio.sleep(0.05)

    async def until_waiting(self, count: int) -> None:
        while await self._count_waiting() != count:
            await asyncio.sleep(0.2)

    async def _count_waiting(self) -> int:
        """-1 if that is not told now."""
        found, parameters = 0, {"limit": "100"}
        async with self._operator() as http:
            while True:
                answer = await http.get("/v1/admin/queue", params=parameters)
                if answer.status_code != httpx.codes.OK:
                    return -1
                page = answer.json()
                found += sum(each["sandbox_id"] is None for each in page["tickets"])
                if page["next_cursor"] is None:
                    return found
                parameters["cursor"] = page["next_cursor"]

    async def grow(self) -> None:
        async with httpx.AsyncClient(timeout=60) as http:
            await http.post(f"{self.provider}/_sim/sandboxes", json={"count": self.size.growth})
        await sync_at(self.servers[0])

    def _operator(self) -> httpx.AsyncClient:
        headers = {"Authorization": f"Bearer {ADMIN_TOKEN}"}
        return httpx.AsyncClient(base_url=self.servers[0].url, headers=headers, timeout=120)


@pytest.mark.timeout(600)
@pytest.mark.parametrize(("name", "size"), CASES)
async def test_a_class_larger_than_the_pool_is_served_in_order_as_it_grows(
    name: str, size: Size, postgres_url: str, dynamo_url: str, tmp_path: Path
) -> None:
    engine_of = faulty_engine(name, postgres_url=postgres_url, dynamo_url=dynamo_url, seed=1)
    with csp_simulator(tmp_path, "--count", str(size.free)) as provider:
        async with engine_of as engine:
            environment = {**engine.environment, **PATIENT, "CSP_BASE_URL": provider}
            count = min(2, engine.replicas)
            async with replicas(count, folder=tmp_path, environment=environment) as servers:
                await sync_at(servers[0])
                pupils = Class(size, servers, provider)
                async with asyncio.TaskGroup() as group:
                    group.create_task(pupils.ask())
                    await serve_all(pupils)
            async with engine.opened(servers) as store:
                await check_served(store, pupils)


async def serve_all(pupils: Class) -> None:
    """The pool grows in two steps, and in the midst of the first a server is killed."""
    size, victim = pupils.size, pupils.servers[-1]
    await pupils.until(lambda: len(pupils.leases) == size.free)
    await pupils.until_waiting(size.waiting)
    await pupils.grow()
    await pupils.until(lambda: len(pupils.leases) > size.free + size.growth // 4)
    victim.kill()
    await victim.start()
    await pupils.until(lambda: len(pupils.leases) == size.free + size.growth)
    await pupils.until_waiting(size.waiting - size.growth)
    await pupils.grow()


async def check_served(store: PoolStore, pupils: Class) -> None:
    """Everybody has one of their own, and who came first was served first."""
    leases, size = pupils.leases, pupils.size
    assert len({each["sandbox_id"] for each in leases.values()}) == size.callers
    assert max(pupils.new.values()) == 1
    queued = {
        each.event.subject: each.event.data["track_id"]
        for each in await events_of(store)
        if each.event.kind == "ticket.created"
    }
    in_order = [leases[queued[ticket]]["name"] for ticket in sorted(queued)]
    assert len(in_order) == size.waiting
    assert max(in_order[: size.growth]) < min(in_order[size.growth :]), "a ticket was overtaken"
    assert {each.allocated_to_track for each in await everything(store)} == set(leases)
    await check_invariants(store)
    assert (await verify(store)).problems == []
