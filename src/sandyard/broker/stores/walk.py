"""Walks around the status index, each from where the last one ended."""

import random
import uuid
from collections.abc import AsyncIterator, Sequence

from sandyard.broker.model import Status
from sandyard.broker.stores.dynamo_items import sandbox_key
from sandyard.broker.stores.dynamo_table import PoolTable
from sandyard.broker.stores.reservoir import Candidate
from sandyard.kit.dynamo import Item


class Walk:
    """Free rows in the index's order, from a random place at first, so that replicas don't meet.

    Ids are UUIDs and spread evenly, so a random id is a random place.
    """

    def __init__(self, pool: PoolTable, prefix: str, randomness: random.Random) -> None:
        self._pool = pool
        self._prefix = prefix
        self._place: Item | None = _place_of(str(uuid.UUID(int=randomness.getrandbits(128))))

    async def __call__(self, wanted: int) -> AsyncIterator[Sequence[Candidate]]:
        """Once around: from here to the end, and then from the beginning."""
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


def _place_of(sandbox_id: str) -> Item:
    return sandbox_key(sandbox_id) | {"status": Status.AVAILABLE, "allocated_at": 0}


def _candidate(item: Item) -> Candidate:
    return Candidate(
        sandbox_id=item["sandbox_id"],
        name=item["name"],
        external_id=item["external_id"],
        lab_duration_hours=float(item["lab_duration_hours"]),
    )
