"""Scans of the status index for free rows, this process's own share of it first.

The index is ordered by id, and ids are UUIDs, so the number of replicas is enough to divide it
evenly. Shares only avoid contention: a scan that finds nothing in them reads the whole index before
it says so.
"""

import asyncio
import random
import uuid
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass

from sandyard.broker.pool.model import Sandbox, Status
from sandyard.broker.pool.stores.dynamo_items import sandbox_key, sandbox_of
from sandyard.broker.stores.dynamo_table import PoolTable
from sandyard.kit.dynamo.replicas import DynamoReplicas
from sandyard.kit.dynamo.values import Item

_LARGEST_PAGE = 500
_IDS = 2**128


@dataclass(frozen=True, slots=True)
class Wanted:
    """Which free rows a claim may lease: by name prefix, and either reserved for a reservation or
    available."""

    name_prefix: str = ""
    reservation_id: str | None = None

    @property
    def status(self) -> Status:
        return Status.AVAILABLE if self.reservation_id is None else Status.RESERVED

    def matches(self, item: Item) -> bool:
        return (
            item["status"] == self.status
            and item.get("reserved_for") == self.reservation_id
            and str(item["name"]).startswith(self.name_prefix)
        )

    @property
    def filter(self) -> str | None:
        """The conditions that the index key does not cover."""
        filters = ["begins_with(#name, :prefix)"] if self.name_prefix else []
        if self.reservation_id is not None:
            filters.append("reserved_for = :holder")
        return " AND ".join(filters) or None

    @property
    def values(self) -> Item:
        return {
            "status": self.status,
            "prefix": self.name_prefix or None,
            "holder": self.reservation_id,
        }


@dataclass(frozen=True, slots=True)
class Share:
    """The ids from `first` on and before `past`; None is open-ended."""

    first: str | None
    past: str | None

    def __contains__(self, sandbox_id: str) -> bool:
        return (self.first is None or sandbox_id >= self.first) and (
            self.past is None or sandbox_id < self.past
        )


@dataclass(frozen=True, slots=True)
class Found:
    """A page of free rows; those of another's share serve waiting claims and are not prefetched."""

    rows: Sequence[Sandbox]
    is_own: bool


def shares(count: int) -> list[Share]:
    borders = [str(uuid.UUID(int=_IDS * n // count)) for n in range(1, count)]
    return [
        Share(first, past) for first, past in zip([None, *borders], [*borders, None], strict=True)
    ]


class IndexScan:
    """Scans for free rows; each scan starts where the last one ended."""

    def __init__(self, pool: PoolTable, wanted: Wanted, replicas: DynamoReplicas) -> None:
        self._pool = pool
        self._wanted = wanted
        self._replicas = replicas
        self._own = Share(None, None)
        self._offset: Item | None = None
        self._was_empty = False

    async def __call__(self, wanted: int) -> AsyncIterator[Found]:
        """The rest of the own share, then all of it, the far ends of the others, and then
        everything: a completed scan has seen every row that existed when it began."""
        await self._replicas.refresh()
        others = self._take_shares()
        if not self._was_empty:
            if self._offset is not None:
                async for rows in self._own_rows(wanted):
                    yield Found(rows, is_own=True)
            async for rows in self._own_rows(wanted):
                yield Found(rows, is_own=True)
            for rows in await self._far_ends(others, wanted):
                yield Found(rows, is_own=False)
        if others or self._was_empty:
            self._was_empty = True
            async for rows, _ in self._pages(None, wanted):
                self._was_empty = self._was_empty and not rows
                yield Found(rows, is_own=False)

    def _take_shares(self) -> list[Share]:
        others = shares(self._replicas.count)
        own = others.pop(self._replicas.rank)
        if own != self._own:
            self._own, self._offset = own, None
        return others

    async def _own_rows(self, wanted: int) -> AsyncIterator[Sequence[Sandbox]]:
        start = self._offset or self._before(self._own.first)
        async for rows, following in self._pages(start, wanted):
            own = [row for row in rows if row.sandbox_id in self._own]
            is_past = any(self._own.past and row.sandbox_id >= self._own.past for row in rows)
            self._offset = None if is_past else following
            yield own
            if is_past:
                return

    async def _far_ends(self, others: Sequence[Share], wanted: int) -> list[Sequence[Sandbox]]:
        """The last free rows of the other shares, the largest share first, each in random order:
        their owners start at the near end, and concurrent scans should not take the same row."""
        ends = await asyncio.gather(*(self._far_end(share, wanted) for share in others))
        return [random.sample(rows, len(rows)) for rows in sorted(ends, key=len, reverse=True)]

    async def _far_end(self, share: Share, wanted: int) -> list[Sandbox]:
        rows, _ = await self._page(self._before(share.past), wanted, forward=False)
        return [row for row in rows if row.sandbox_id in share]

    async def _pages(
        self, start: Item | None, wanted: int
    ) -> AsyncIterator[tuple[list[Sandbox], Item | None]]:
        """Pages from `start` to the end, each with the start of the next."""
        limit = wanted
        while True:
            rows, start = await self._page(start, limit)
            yield rows, start
            if start is None:
                return
            if self._wanted.filter:  # not a key: pages grow where few rows match
                limit = min(2 * limit, max(wanted, _LARGEST_PAGE))

    async def _page(
        self, start: Item | None, limit: int, *, forward: bool = True
    ) -> tuple[list[Sandbox], Item | None]:
        items, following, _ = await self._pool.table.query(
            index=self._pool.status_index,
            condition="#status = :status",
            values=self._wanted.values,
            where=self._wanted.filter,
            limit=limit,
            start=start,
            forward=forward,
        )
        return [sandbox_of(item) for item in items], following

    def _before(self, sandbox_id: str | None) -> Item | None:
        """The index key of this id's row; a page starts after it."""
        if sandbox_id is None:
            return None
        return sandbox_key(sandbox_id) | {"status": self._wanted.status, "allocated_at": 0}
