"""All that the Broker's stores have, for moves. The positions of sinks are moved separately, as
they depend on the engine; a client's count follows from its slots."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from sandyard.broker.delivery.model import Attempt
from sandyard.broker.history.model import PoolSample
from sandyard.broker.pool.model import HeldLease, PoolTransition, Sandbox, Tombstone
from sandyard.broker.queue.ports import ticket_pages
from sandyard.broker.verification import SINGLES
from sandyard.broker.wiring.pool import Pool, opened_pool
from sandyard.kit.changes.transitions import Transition
from sandyard.kit.concurrency.tasks import for_each
from sandyard.kit.paging import all_pages
from sandyard.settings import Settings
from sandyard.wiring.contents import Collection, event_collection

_PAGE = 100
_SLOTS = 1000
_PARALLEL = 32
_FAR = 10**11
"""A time after all others."""


@asynccontextmanager
async def open_broker_contents(
    settings: Settings, data_dir: Path
) -> AsyncIterator[Sequence[Collection]]:
    async with opened_pool(settings, data_dir) as pool:
        contents = _Contents(pool)
        yield [
            Collection("sandboxes", contents.sandboxes, contents.add_sandboxes),
            Collection("other entities", contents.others, contents.add_others),
            Collection("attempts", contents.attempts, pool.deliveries.log_attempts),
            Collection("token uses", contents.token_uses, contents.add_token_uses),
            Collection("slots", contents.slots, contents.add_slots),
            Collection("samples", contents.samples, contents.add_samples),
            event_collection(pool.store.events),
        ]


class _Contents:
    def __init__(self, pool: Pool) -> None:
        self._pool = pool
        self._slots = asyncio.Semaphore(_PARALLEL)

    async def sandboxes(self) -> AsyncIterator[Sequence[Sandbox | Tombstone]]:
        """A lease is part of its sandbox."""
        async for entries in self._pool.store.audit():
            yield [each for each in entries if not isinstance(each, HeldLease)]

    async def add_sandboxes(self, entries: Sequence[Sandbox | Tombstone]) -> None:
        await self._pool.store.apply([_added(each) for each in entries])

    async def others(self) -> AsyncIterator[Sequence[Any]]:
        store = self._pool.store
        async for tickets in ticket_pages(store):
            yield tickets
        async for reservations in all_pages(
            store.reservations, starts_before=_FAR, ends_after=-1, limit=_PAGE
        ):
            yield reservations
        yield [each for kind in SINGLES if (each := await store.find_single(kind)) is not None]
        yield [*await self._pool.deliveries.webhooks(), *await self._pool.clients.clients()]

    async def add_others(self, entities: Sequence[Any]) -> None:
        async def add(entity: Any) -> None:
            await self._pool.store.apply_together(Transition(None, entity, ()))

        await self._each(entities, add)

    async def attempts(self) -> AsyncIterator[Sequence[Attempt]]:
        deliveries = self._pool.deliveries
        for webhook in await deliveries.webhooks():
            async for found in all_pages(deliveries.attempts, webhook.webhook_id, limit=_PAGE):
                if found:
                    yield found

    async def token_uses(self) -> AsyncIterator[Sequence[tuple[str, int]]]:
        for client in await self._pool.clients.clients():
            ids = [token["token_id"] for token in client.tokens]
            yield sorted((await self._pool.clients.last_uses(ids)).items())

    async def add_token_uses(self, uses: Sequence[tuple[str, int]]) -> None:
        for token_id, at in uses:
            await self._pool.clients.note_use(token_id, at=at)

    async def slots(self) -> AsyncIterator[Sequence[tuple[str, str, str]]]:
        """Without the times when they were taken and the hours that paid for them."""
        last: tuple[str, str, str] | None = None
        while slots := await self._pool.clients.slots(
            taken_before_ms=_FAR * 1000, limit=_SLOTS, after=last
        ):
            last = slots[-1]
            yield slots

    async def add_slots(self, slots: Sequence[tuple[str, str, str]]) -> None:
        """As taken long ago, so that they count for no hour's budget and are freed if they have no
        lease."""
        for client, track_id, key in slots:
            lease_key = (track_id, key)
            await self._pool.clients.take_slot(
                client, lease_key, most=_FAR, per_hour=None, now_ms=0
            )
            await self._pool.clients.use_slot(client, lease_key)

    async def samples(self) -> AsyncIterator[Sequence[PoolSample]]:
        yield await self._pool.history.samples(since=0)

    async def add_samples(self, samples: Sequence[PoolSample]) -> None:
        async def add(sample: PoolSample) -> None:
            await self._pool.history.record(sample, kept_from=0)

        await self._each(samples, add)

    async def _each(self, items: Sequence[Any], add: Callable[[Any], Awaitable[None]]) -> None:
        await for_each(items, add, slots=self._slots)


def _added(entry: Sandbox | Tombstone) -> PoolTransition:
    """With its lease, and without an event: those are moved too."""
    transition: Transition[Sandbox | Tombstone] = Transition(None, entry, ())
    return transition
