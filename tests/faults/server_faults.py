"""What goes wrong beside the engine: servers are killed, sandboxes fall ill, the pool is short."""

import asyncio
import random
from collections.abc import AsyncIterator, Callable, Coroutine, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

import httpx
from aiohttp import web

from tests.faults.cluster import Replica
from tests.faults.run_coverage import QUARANTINED, RESTORED, Mix

MOST_LISTED = 300


@dataclass(slots=True)
class ProbedSandboxes:
    """What answers for the sandboxes: some are ill for a while, and then well again, so long as it
    takes until that is seen."""

    external_ids: list[str]
    ill: set[str] = field(default_factory=set)
    url: str = ""

    async def answer(self, request: web.Request) -> web.Response:
        return web.Response(status=503 if request.match_info["id"] in self.ill else 200)

    async def change(self, rng: random.Random, mix: Mix) -> None:
        while True:
            self.ill = set(rng.sample(self.external_ids, len(self.external_ids) // 5))
            await asyncio.sleep(3)
            if mix.events[QUARANTINED]:
                await self._recover(mix)

    async def _recover(self, mix: Mix) -> None:
        """All are well, for longer until one was seen to recover."""
        self.ill = set()
        for _ in range(4):
            await asyncio.sleep(2)
            if mix.events[RESTORED]:
                return


@asynccontextmanager
async def probed(probed_sandboxes: ProbedSandboxes) -> AsyncIterator[ProbedSandboxes]:
    app = web.Application()
    app.router.add_get("/{id}", probed_sandboxes.answer)
    runner = web.AppRunner(app, shutdown_timeout=0.1)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    probed_sandboxes.url = f"http://127.0.0.1:{runner.addresses[0][1]}/{{external_id}}"
    try:
        yield probed_sandboxes
    finally:
        await runner.cleanup()


async def grow(provider_url: str, wanted: Callable[[], int]) -> None:
    """The provider makes more, so many in all as are wanted by then; a sync brings them in. While
    syncs fail it does not make ever more, which a sync that often fails would never get through."""
    made = 0
    async with httpx.AsyncClient(base_url=provider_url, timeout=60) as http:
        while True:
            await asyncio.sleep(1)
            there = (await http.get("/_sim")).json()["sandboxes"]
            if (more := min(wanted() - made, MOST_LISTED - there)) > 0:
                await http.post("/_sim/sandboxes", json={"count": more})
                made += more


@dataclass(slots=True)
class Kills:
    """Kills a server when so many operations were done since the last was back: a slow machine
    kills as often as a fast one."""

    servers: Sequence[Replica]
    every: int
    total: int = 0
    victim: Replica | None = None
    """The one that is down."""

    async def go_on(self, rng: random.Random, done: Callable[[], int]) -> None:
        while True:
            until = done() + self.every
            while done() < until:
                await asyncio.sleep(0.02)
            self.victim = rng.choice(self.servers)
            self.victim.kill()
            self.total += 1
            await asyncio.sleep(rng.uniform(0, 0.5))
            await self.bring_back()

    async def bring_back(self) -> None:
        if self.victim is not None:
            await self.victim.start()
            self.victim = None


@asynccontextmanager
async def beside(*endless: Coroutine[Any, Any, None]) -> AsyncIterator[None]:
    """These go on during the block; if one fails, so does the block."""
    async with asyncio.TaskGroup() as group:
        tasks = [group.create_task(each) for each in endless]
        try:
            yield
        finally:
            for task in tasks:
                task.cancel()
