"""Batches of claims in one statement each, on prefetched rows that have not changed since."""

import asyncio
from collections import deque
from collections.abc import Mapping, Sequence
from functools import partial

import sqlalchemy as sa
from sqlalchemy.exc import IntegrityError

from sandyard.broker.pool.model import Claim, Claimed, Lease, Sandbox, decide_claim
from sandyard.broker.pool.stores.sql_claim_statements import lease_decided
from sandyard.broker.pool.stores.sql_claims import (
    LeaseKey,
    Source,
    free_rows,
    lease_key,
    read_sandbox,
)
from sandyard.kit.sql.batches import Prepared
from sandyard.kit.sql.database import Database

_BATCHES_PREFETCHED = 8
_MOST_PREFETCHED = 512
_MAX_AGE_SEC = 1.0
_PAUSE_SEC = 1.0


class PrefetchedClaims:
    """Leases rows that this process prefetched from one source; each row belongs to one batch.

    A batch is one compare-and-set on the sequences of its rows. It skips keys that have a lease,
    and rows that were changed or are locked: those claims are left to a transaction with locks,
    which waits and decides. Processes that lease from the same pool would keep competing for the
    same rows; so one that has lost a row leaves all claims to locks for a while.
    """

    def __init__(self, database: Database, source: Source) -> None:
        self._database = database
        self._source = source
        self._ready: deque[Sandbox] = deque()
        self._in_use: set[str] = set()
        self._prefetch_size = 0
        self._read_at = self._paused_until = float("-inf")
        self._refill_lock = asyncio.Lock()

    async def claim(self, claims: Sequence[Claim]) -> list[Claimed | None]:
        """A new lease for each claim that could be served this way; None for the others."""
        first: dict[LeaseKey, int] = {}
        for index, claim in enumerate(claims):
            first.setdefault(claim.lease_key, index)
        leases = await self._lease([claims[index] for index in first.values()])
        return [
            Claimed(lease, is_new=first[claim.lease_key] == index)
            if (lease := leases.get(claim.lease_key))
            else None
            for index, claim in enumerate(claims)
        ]

    def pause(self) -> None:
        """Pause: others lease from the pool too, or nothing is left. Does not extend a pause."""
        if _now() >= self._paused_until:
            self._paused_until = _now() + _PAUSE_SEC
            self._ready.clear()

    async def _lease(self, claims: Sequence[Claim]) -> Mapping[LeaseKey, Lease]:
        rows = await self._take(len(claims))
        if not rows:
            return {}
        in_use = [row.sandbox_id for row in rows]
        self._in_use.update(in_use)
        try:
            return await self._write(rows, claims[: len(rows)])
        except IntegrityError:
            return {}  # another process leased one of these keys
        finally:
            self._in_use.difference_update(in_use)

    async def _write(
        self, rows: Sequence[Sandbox], claims: Sequence[Claim]
    ) -> Mapping[LeaseKey, Lease]:
        # All writers lock in the order of the keys.
        served = sorted(claims, key=lease_key)
        decided = [decide_claim(row, claim) for row, claim in zip(rows, served, strict=True)]
        lease = partial(lease_decided, decided=decided, free=self._source.status)
        applied = await self._database.run_statement(lease)
        return {
            claim.lease_key: each.result.lease
            for claim, each in zip(served, decided, strict=True)
            if each.result.sandbox_id in applied
        }

    async def _take(self, number: int) -> list[Sandbox]:
        if _now() < self._paused_until:
            return []
        async with self._refill_lock:  # concurrent callers share one read
            is_fresh = _now() - self._read_at <= _MAX_AGE_SEC
            if len(self._ready) < number or not is_fresh:
                # Rows that did not last a second were too few.
                least = 2 * self._prefetch_size if is_fresh else 0
                self._prefetch_size = min(
                    _MOST_PREFETCHED, max(number * _BATCHES_PREFETCHED, least)
                )
                await self._prefetch(max(number, self._prefetch_size))
        return [self._ready.popleft() for _ in range(min(number, len(self._ready)))]

    async def _prefetch(self, number: int) -> None:
        in_use = frozenset(self._in_use)
        read = partial(_read_free, source=self._source, limit=number + len(in_use))
        rows = await self._database.run_statement(read)
        self._ready = deque(row for row in rows if row.sandbox_id not in in_use)
        self._read_at = _now()


def _now() -> float:
    return asyncio.get_running_loop().time()


_AVAILABLE, _RESERVED = (
    Prepared(
        free_rows(by_name=False, is_reserved=is_reserved).limit(
            sa.bindparam("limit", type_=sa.Integer)
        )
    )
    for is_reserved in (False, True)
)


def _read_free(connection: sa.Connection, *, source: Source, limit: int) -> list[Sandbox]:
    statement = _AVAILABLE if source.reservation_id is None else _RESERVED
    rows = statement.execute(connection, {"limit": limit, "holder": source.reservation_id})
    return [read_sandbox(row) for row in rows.fetchall()]
