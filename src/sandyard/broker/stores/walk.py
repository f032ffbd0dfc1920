"""Walks around the status index, each from where the last one ended."""

import uuid
from collections.abc import AsyncIterator, Sequence

from sandyard.broker.model import Status
from sandyard.broker.stores.dynamo_items import sandbox_key
from sandyard.broker.stores.dynamo_table import PoolTable
from sandyard.broker.stores.reservoir import Candidate
from sandyard.kit import ids
from sandyard.kit.clock import Clock
from sandyard.kit.dynamo_values import Item
from sandyard.kit.jobs import JobLeases

_SLOTS = 256
_SLOT_SEC = 3600


class Places:
    """Where in the index each process begins, as far from the others as can be.

    A process holds the lowest free slot, as a lease in the table; the slots lie at 0, 1/2, 1/4,
    3/4, 1/8 … of the way around, so that however many there are, they are spread evenly. Ids are
    UUIDs, so a share of the way is an id. Two processes on one slot would only meet more often.
    """

    def __init__(self, leases: JobLeases, clock: Clock) -> None:
        self._leases = leases
        self._clock = clock
        self._holder = ids.holder_id()
        self._slot: int | None = None

    async def first(self) -> Item:
        if self._slot is None:
            self._slot = await self._take_slot()
        share = _spread(self._slot)
        return _place_of(str(uuid.UUID(int=int(share * (2**128 - 1)))))

    async def _take_slot(self) -> int:
        now = self._clock.now()
        for slot in range(_SLOTS):
            if await self._leases.acquire(
                f"slot-{slot}", holder=self._holder, now=now, held_until=now + _SLOT_SEC
            ):
                return slot
        return _SLOTS


class Walk:
    """Free rows in the index's order, from this process's own place at first."""

    def __init__(self, pool: PoolTable, prefix: str, places: Places) -> None:
        self._pool = pool
        self._prefix = prefix
        self._places = places
        self._has_begun = False
        self._place: Item | None = None

    async def __call__(self, wanted: int) -> AsyncIterator[Sequence[Candidate]]:
        """Once around: from here to the end, and then from the beginning."""
        if not self._has_begun:
            self._place = await self._places.first()
            self._has_begun = True
        start, began_inside = self._place, self._place is not None
        while True:
            items, start, _ = await self._pool.table.query(
                index=self._pool.status_index,
                condition="#status = :status",
                values={"status": Status.AVAILABLE, "prefix": self._prefix or None},
                where="begins_with(#name, :prefix)" if self._prefix else None,
                limit=None if self._prefix else wanted,
                start=start,
            )
            self._place = start
            yield [_candidate(item) for item in items]
            if start is None:
                if not began_inside:
                    return
                began_inside = False


def _spread(slot: int) -> float:
    """The slot's binary digits mirrored behind the point: 0, 0.5, 0.25, 0.75, 0.125 …"""
    share, step = 0.0, 0.5
    while slot:
        share += step * (slot & 1)
        slot, step = slot >> 1, step / 2
    return share


def _place_of(sandbox_id: str) -> Item:
    return sandbox_key(sandbox_id) | {"status": Status.AVAILABLE, "allocated_at": 0}


def _candidate(item: Item) -> Candidate:
    return Candidate(
        sandbox_id=item["sandbox_id"],
        name=item["name"],
        external_id=item["external_id"],
        lab_duration_hours=float(item["lab_duration_hours"]),
    )
