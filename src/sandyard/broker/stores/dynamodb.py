"""The pool on DynamoDB: one table, one write per claim, and no decision based on an index.

A sandbox is `SBX#{id}`, its lease `LEASE#{track}#{key}`, its tombstone `GONE#{id}`. Only sandboxes
have index keys. The indexes lag, so they only supply candidates; conditions check the current
state.
"""

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from datetime import timedelta
from functools import partial
from typing import Any

from sandyard.broker.pool import model
from sandyard.broker.pool.ports import PoolCounts
from sandyard.broker.pool.provider_model import is_deletion_due
from sandyard.broker.pool.stores import dynamo_items
from sandyard.broker.pool.stores.dynamo_claims import DynamoClaims, new_write_id
from sandyard.broker.pool.stores.dynamo_pages import DynamoPages
from sandyard.broker.queue.stores.dynamo import DynamoQueue
from sandyard.broker.reservations.stores.dynamo import DynamoReservations
from sandyard.broker.stores import dynamo_entities
from sandyard.broker.stores.dynamo_table import PoolTable
from sandyard.broker.stores.dynamo_writes import DynamoWrites
from sandyard.kit.changes.transitions import E, Transition
from sandyard.kit.clock import Clock
from sandyard.kit.dynamo.client import ConditionFailedError
from sandyard.kit.dynamo.events import DynamoEventLog
from sandyard.kit.dynamo.values import Item

_PARALLEL = 32
_COUNTS_KEY = {"PK": "COUNTS", "SK": "META"}
_IS_STATUS = "#status = :status"
_UNUSED_VALUES = {f"unused{number}": status for number, status in enumerate(model.UNUSED)}
_IS_UNUSED = f"#status IN ({', '.join(f':{each}' for each in _UNUSED_VALUES)})"


class DynamoPoolStore(DynamoPages, DynamoQueue, DynamoReservations):
    def __init__(
        self,
        pool: PoolTable,
        *,
        clock: Clock,
        prefetch_size: int,
        on_conflict: Callable[[], None] = lambda: None,
        counts_age_sec: float = 15,
        event_retention: timedelta = timedelta(days=90),
    ) -> None:
        self._pool = pool
        self._table = pool.table
        self._clock = clock
        self.events = DynamoEventLog(
            pool.events, part="broker", alive=self._alive, clock=clock, retention=event_retention
        )
        self._counts_age_sec = counts_age_sec
        self._claims = DynamoClaims(
            pool, clock=clock, prefetch_size=prefetch_size, on_conflict=on_conflict
        )
        self._writes = DynamoWrites(pool)
        self._slots = asyncio.Semaphore(_PARALLEL)
        self._checked = False

    async def start(self) -> None:
        await self._claims.start()

    async def claim(self, claim: model.Claim) -> model.Claimed | None:
        return await self._claims.claim(claim)

    async def find(self, sandbox_id: str) -> model.Sandbox | model.Tombstone | None:
        items = await self._table.get_many(
            [dynamo_items.sandbox_key(sandbox_id), dynamo_items.gone_key(sandbox_id)]
        )
        entries = {item["PK"]: item for item in items}
        if row := entries.get(f"SBX#{sandbox_id}"):
            return dynamo_items.sandbox_of(row)
        # The two reads are not atomic: a deletion in between shows neither.
        gone = entries.get(f"GONE#{sandbox_id}") or await self._table.get(
            dynamo_items.gone_key(sandbox_id)
        )
        return dynamo_items.tombstone_of(gone) if gone else None

    async def find_lease(self, track_id: str, key: str) -> model.Lease | None:
        item = await self._table.get(dynamo_items.lease_key(track_id, key))
        return dynamo_items.lease_of(item) if item else None

    async def apply(self, transitions: Sequence[model.PoolTransition]) -> Sequence[bool]:
        async def apply(transition: model.PoolTransition) -> bool:
            async with self._slots:
                return await self._writes.apply(transition)

        outcomes = await asyncio.gather(*map(apply, transitions), return_exceptions=True)
        for outcome in outcomes:  # all have finished, so nothing is written after this
            if isinstance(outcome, BaseException):
                raise outcome
        return outcomes  # type: ignore[return-value]

    async def apply_together(self, *transitions: Transition[Any]) -> bool:
        return await self._writes.apply(*transitions)

    async def _alive(self, subjects: Sequence[str]) -> set[str]:
        of_ids = (dynamo_items.sandbox_key, dynamo_items.gone_key, dynamo_entities.reservation_key)
        keys = [key(each) for each in subjects for key in of_ids]
        items = await self._table.get_many(
            [*keys, *dynamo_entities.SINGLE_KEYS.values(), *dynamo_entities.other_keys(subjects)]
        )
        return {dynamo_entities.subject_of_item(item) for item in items}

    async def tombstoned(self, sandbox_ids: Sequence[str]) -> set[str]:
        items = await self._table.get_many([dynamo_items.gone_key(each) for each in sandbox_ids])
        return {item["sandbox_id"] for item in items}

    async def confirm_listed(self, sandbox_ids: Sequence[str], *, now: int) -> None:
        await self._table.update_each(
            [dynamo_items.sandbox_key(each) for each in sandbox_ids],
            "SET last_synced = :now",
            {"now": now, **_UNUSED_VALUES},
            condition=_IS_UNUSED,
            slots=self._slots,
        )

    async def renew_tombstones(self, sandbox_ids: Sequence[str], *, kept_until: int) -> None:
        await self._table.update_each(
            [dynamo_items.gone_key(each) for each in sandbox_ids],
            "SET kept_until = :until, #ttl = :until",
            {"until": kept_until},
            slots=self._slots,
        )

    async def drop_tombstones(self, *, now: int) -> None:
        """DynamoDB removes them by their `ttl`; until then the conditions detect that they have
        expired."""

    async def everything(self) -> AsyncIterator[Sequence[model.Sandbox]]:
        for status in model.Status:
            async for items in self._pages(status):
                yield [dynamo_items.sandbox_of(item) for item in items]

    async def audit(
        self,
    ) -> AsyncIterator[Sequence[model.Sandbox | model.HeldLease | model.Tombstone]]:
        async for items in self._table.scan():
            yield [entry for item in items if (entry := dynamo_items.entry_of(item)) is not None]

    def overdue(self, *, ended_by: int, size: int = 100) -> AsyncIterator[Sequence[model.Sandbox]]:
        is_due = partial(model.is_overdue, grace_sec=0, now=ended_by)
        return self._due(model.Status.ALLOCATED, is_due, size, allocated_by=ended_by)

    def deletable(self, *, now: int, size: int = 100) -> AsyncIterator[Sequence[model.Sandbox]]:
        return self._due(model.Status.PENDING_DELETION, partial(is_deletion_due, now=now), size)

    async def _due(
        self,
        status: model.Status,
        is_due: Callable[[model.Sandbox], bool],
        size: int,
        *,
        allocated_by: int | None = None,
    ) -> AsyncIterator[Sequence[model.Sandbox]]:
        """Rows that are due according to the index and to a consistent read."""
        async for items in self._pages(status, limit=size, allocated_by=allocated_by):
            due = [row for row in map(dynamo_items.sandbox_of, items) if is_due(row)]
            fresh = await self._table.get_many(
                [dynamo_items.sandbox_key(row.sandbox_id) for row in due]
            )
            yield [row for row in map(dynamo_items.sandbox_of, fresh) if is_due(row)]

    async def counts(self) -> PoolCounts:
        """The last stored counts, at most 15 seconds old; the first replica to find them older
        counts again."""
        now = self._clock.now()
        stored = await self._table.get(_COUNTS_KEY)
        if stored is None or stored.get("taken_at", 0) + self._counts_age_sec <= now:
            stored = await self._take_counts(now) or stored
        stored = stored or {}
        counts = stored.get("counts", {})
        by_status = {status: int(counts.get(str(status), 0)) for status in model.Status}
        return PoolCounts(by_status, counted_at=int(stored.get("taken_at", now)))

    async def _take_counts(self, now: float) -> Item | None:
        """Count by the index, unless another replica is doing so."""
        write_id = new_write_id()
        try:
            await self._table.update(
                _COUNTS_KEY,
                "SET counting_until = :until, write_id = :write_id",
                {"now": now, "until": now + self._counts_age_sec, "write_id": write_id},
                condition="attribute_not_exists(counting_until) OR counting_until <= :now",
            )
        except ConditionFailedError as refused:
            found = refused.item or {}
            if "counts" in found and found.get("write_id") != write_id:
                return None
        counts = {str(status): await self._count(status) for status in model.Status}
        item: Item = {**_COUNTS_KEY, "taken_at": now, "counts": counts}
        await self._table.put(item)
        return item

    async def _count(self, status: model.Status) -> int:
        return await self._table.count(
            index=self._pool.status_index, condition=_IS_STATUS, values={"status": status}
        )

    async def find_single(self, kind: type[E]) -> E | None:
        key = dynamo_entities.SINGLE_KEYS[kind]
        return await dynamo_entities.find_entity(self._table, kind, key)

    async def check(self) -> None:
        if self._checked:
            await self._table.probe_get(_COUNTS_KEY)
            return
        await self._pool.check()
        self._checked = True

    async def close(self) -> None:
        await self._claims.stop()
        await self._table.engine.close()

    def _pages(
        self, status: model.Status, *, limit: int | None = None, allocated_by: int | None = None
    ) -> AsyncIterator[list[Item]]:
        condition = _IS_STATUS
        if allocated_by is not None:
            condition += " AND allocated_at <= :by"
        return self._table.pages(
            index=self._pool.status_index,
            condition=condition,
            values={"status": status, "by": allocated_by},
            limit=limit,
        )
