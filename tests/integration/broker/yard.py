"""A pool, its jobs and a provider that can be troubled."""

import asyncio
import random
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, cast

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from sandyard.broker.metrics import BrokerMetrics
from sandyard.broker.pool.jobs import Cleanup, Expiry
from sandyard.broker.pool.model import PoolTransition, Sandbox, Status, Tombstone
from sandyard.broker.pool.ports import PoolStore
from sandyard.broker.pool.provider_model import DeletionPolicy
from sandyard.broker.pool.service import Broker
from sandyard.broker.pool.sync import Sync
from sandyard.broker.provider.ports import Provider
from sandyard.kit.errors import UnavailableError
from sandyard.tools.provider.simulator import Faults, Simulator
from tests.integration.conftest import Connect
from tests.support.broker.services import new_sync
from tests.support.clocks import ManualClock

HOUR = 3600
DAY = 24 * HOUR
LAB_HOURS = 4.0
GRACE_SEC = 30 * 60
BACKOFF_BASE_SEC = 300
BACKOFF_MAX_SEC = 3600
DEADLINE_SEC = 60

HEALTHY = Faults()
OUTAGE = Faults(outage="error")


@dataclass
class Yard:
    """A pool with its callers and its jobs, and the provider that the jobs talk to."""

    simulator: Simulator
    url: str
    connect: Connect
    store: PoolStore
    broker: Broker
    clock: ManualClock
    metrics: BrokerMetrics

    def now(self) -> int:
        return int(self.clock.now())

    def sync(
        self, *, lab_hours: float = LAB_HOURS, provider: Provider | None = None, **policy: Any
    ) -> Sync:
        return new_sync(
            self.store,
            provider or self.connect(self.url, **policy),
            clock=self.clock,
            metrics=self.metrics,
            lab_duration_hours=lab_hours,
        )

    def cleanup(
        self,
        *,
        max_attempts: int = 3,
        parallel: int = 10,
        provider: Provider | None = None,
        **policy: Any,
    ) -> Cleanup:
        return Cleanup(
            self.store,
            provider or self.connect(self.url, **policy),
            clock=self.clock,
            metrics=self.metrics,
            policy=DeletionPolicy(max_attempts, BACKOFF_BASE_SEC, BACKOFF_MAX_SEC),
            parallel=parallel,
            randomness=random.Random(7),
        )

    def expiry(self) -> Expiry:
        return Expiry(self.store, clock=self.clock, metrics=self.metrics, grace_sec=GRACE_SEC)

    async def fill(self, number: int) -> list[str]:
        """So many new sandboxes at the provider and in the pool; gives their external ids."""
        known = set(self.simulator.sandboxes)
        self.simulator.create(number)
        assert (await self.sync().run()).added == number
        return [identity for identity in self.simulator.sandboxes if identity not in known]

    async def lease(self, number: int = 1) -> list[str]:
        """Lease so many sandboxes to tracks of their own; gives the sandbox ids."""
        tracks = [f"track-{index}" for index in range(number)]
        claims = await asyncio.gather(*(self.broker.allocate(track_id=track) for track in tracks))
        return [claimed.lease.sandbox_id for claimed in claims]

    async def give_up(self, number: int = 1) -> list[str]:
        """Lease and mark so many sandboxes; gives the sandbox ids that wait for deletion."""
        leased = await self.lease(number)
        for index, sandbox_id in enumerate(leased):
            await self.broker.mark_for_deletion(track_id=f"track-{index}", sandbox_id=sandbox_id)
        return leased

    def hide(self, external_ids: Sequence[str]) -> dict[str, dict[str, str]]:
        """Let the provider lose these; gives what `show` takes to bring them back."""
        return {identity: self.simulator.sandboxes.pop(identity) for identity in external_ids}

    def show(self, hidden: dict[str, dict[str, str]]) -> None:
        self.simulator.sandboxes.update(hidden)

    async def row(self, sandbox_id: str) -> Sandbox:
        row = await self.store.find(sandbox_id)
        assert isinstance(row, Sandbox)
        return row

    def interrupt(self, meanwhile: Callable[[], Awaitable[object]]) -> None:
        """Let this happen when the next sync has looked at the pool and before it writes."""
        self.store = cast("PoolStore", InterruptedStore(self.store, meanwhile))

    async def rows(self) -> dict[str, Sandbox]:
        return {row.sandbox_id: row async for page in self.store.everything() for row in page}

    async def statuses(self) -> dict[Status, int]:
        """How many rows are in each state that has any."""
        counts = (await self.store.counts()).by_status
        return {status: number for status, number in counts.items() if number}


@dataclass
class GatedProvider:
    """A provider in the generic dialect whose answers wait behind gates.

    A list is drawn up when it is asked for, so one that waits grows old.
    """

    simulator: Simulator
    list_gate: asyncio.Event = field(default_factory=asyncio.Event)
    delete_gate: asyncio.Event = field(default_factory=asyncio.Event)
    lists_waiting: int = 0
    deletes_at_once: int = 0
    most_deletes_at_once: int = 0

    def app(self) -> Starlette:
        return Starlette(
            routes=[
                Route("/api/sandbox", self._list),
                Route("/api/sandbox/{identity}", self._delete, methods=["DELETE"]),
            ]
        )

    async def _list(self, _request: Request) -> Response:
        entries = self.simulator.listed()
        self.lists_waiting += 1
        await self.list_gate.wait()
        return JSONResponse({"sandboxes": entries, "next_cursor": None})

    async def _delete(self, request: Request) -> Response:
        self.deletes_at_once += 1
        self.most_deletes_at_once = max(self.most_deletes_at_once, self.deletes_at_once)
        await self.delete_gate.wait()
        await asyncio.sleep(0.01)  # long enough that one too many would be seen beside it
        self.simulator.delete(request.path_params["identity"])
        self.deletes_at_once -= 1
        return Response(status_code=204)


class InterruptedStore:
    """A real store, with something happening between sync's look at it and its writes."""

    def __init__(self, store: PoolStore, meanwhile: Callable[[], Awaitable[object]]) -> None:
        self._store = store
        self._meanwhile = meanwhile

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)

    async def everything(self) -> AsyncIterator[Sequence[Sandbox]]:
        async for page in self._store.everything():
            yield page
        await self._meanwhile()


class AwayStore:
    """A real store, until a deletion is to be recorded: then the engine is away."""

    def __init__(self, store: PoolStore) -> None:
        self._store = store

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)

    async def apply(self, transitions: Sequence[PoolTransition]) -> Sequence[bool]:
        if any(isinstance(each.after, Tombstone) for each in transitions):
            raise UnavailableError
        return await self._store.apply(transitions)
