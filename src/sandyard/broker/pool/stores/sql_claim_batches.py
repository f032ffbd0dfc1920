"""Batches of claims in SQL: from prefetched rows by compare-and-set, the others with locks."""

import asyncio
from collections import defaultdict, deque
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from functools import partial

import sqlalchemy as sa
from sqlalchemy.exc import IntegrityError

from sandyard.broker.pool.errors import RowBusyError
from sandyard.broker.pool.model import Claim, Claimed, Lease, Sandbox, decide_claim
from sandyard.broker.pool.stores.sql_claim_statements import lease_decided
from sandyard.broker.pool.stores.sql_claims import (
    LeaseKey,
    Source,
    claim_batch,
    free_rows,
    lease_key,
)
from sandyard.broker.pool.stores.sql_rows import read_sandbox
from sandyard.kit.concurrency.batching import Batcher
from sandyard.kit.sql.batches import Prepared
from sandyard.kit.sql.database import Database
from sandyard.kit.sql.transitions import StaleTransitionError

_BATCHES_PREFETCHED = 8
_MOST_PREFETCHED = 512
_MAX_AGE_SEC = 1.0
_PAUSE_SEC = 1.0
_LARGEST_BATCH = 64
_PARALLEL_BATCHES = 8
_BATCH_PAUSE_SEC = 0.0001
"""The time that the event loop takes to answer a caller and read its next request."""
_ATTEMPTS = 10
_MOST_SOURCES = 50

Results = list[Claimed | None]


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
        # All writers lock in the order of the keys.
        served = sorted(claims[: len(rows)], key=lease_key)
        decided = [decide_claim(row, claim) for row, claim in zip(rows, served, strict=True)]
        lease = partial(lease_decided, decided=decided, free=self._source.status)
        in_use = [row.sandbox_id for row in rows]
        self._in_use.update(in_use)
        try:
            applied = await self._database.run_statement(lease)
        except IntegrityError:
            return {}  # another process leased one of these keys
        finally:
            self._in_use.difference_update(in_use)
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


def claim_batcher(database: Database) -> Batcher[Claim, Claimed | None]:
    """Claims that wait at the same time share a statement or a transaction."""
    return Batcher(
        ClaimBatches(database).claim,
        key=lease_key,
        parallel=_PARALLEL_BATCHES if database.concurrent_writers else 1,
        max_size=_LARGEST_BATCH,
        pause_sec=0 if database.concurrent_writers else _BATCH_PAUSE_SEC,
    )


class ClaimBatches:
    def __init__(self, database: Database) -> None:
        self._database = database
        self._prefetched: dict[str | None, PrefetchedClaims] = {}

    async def claim(self, claims: Sequence[Claim]) -> Sequence[Claimed | None]:
        """One transaction for each name prefix, longest first, and for each reservation: a
        transaction that searched twice could lease a row that another added after it began, and its
        event would precede the other's."""
        groups: dict[tuple[str, tuple[str, ...]], list[int]] = defaultdict(list)
        for index, claim in enumerate(claims):
            groups[claim.name_prefix, claim.reservations].append(index)
        results: Results = [None] * len(claims)
        for name_prefix, reservations in sorted(
            groups, key=lambda group: len(group[0]), reverse=True
        ):
            indexes = groups[name_prefix, reservations]
            group = [claims[index] for index in indexes]
            if name_prefix:
                claimed = await self._claim_with_locks(group, name_prefix, reservations)
            else:
                claimed = await self._claim_prefetched(group, reservations)
            for index, result in zip(indexes, claimed, strict=True):
                results[index] = result
        return results

    async def _claim_prefetched(
        self, claims: Sequence[Claim], reservations: Sequence[str]
    ) -> Results:
        """From prefetched rows, in one round trip; the remaining claims use locks."""
        prefetched = self._prefetched_of(reservations[0] if reservations else None)
        results = await prefetched.claim(claims)
        if None in results:
            served = await _serve_rest(
                results, claims, lambda rest: self._claim_with_locks(rest, "", reservations)
            )
            if any(result is None or result.is_new for result in served):
                prefetched.pause()  # the rows were gone; the keys had no lease
        return results

    def _prefetched_of(self, reservation_id: str | None) -> PrefetchedClaims:
        if reservation_id not in self._prefetched:
            if len(self._prefetched) > _MOST_SOURCES:
                self._prefetched.clear()  # most are of past reservations
            source = Source(reservation_id=reservation_id)
            self._prefetched[reservation_id] = PrefetchedClaims(self._database, source)
        return self._prefetched[reservation_id]

    async def _claim_with_locks(
        self, claims: Sequence[Claim], name_prefix: str, reservations: Sequence[str]
    ) -> Results:
        """From the reservations, then from available rows. The reservations are searched again,
        because a row may move into one meanwhile."""
        results: Results = [None] * len(claims)
        for source in self._sources(name_prefix, reservations):
            await _serve_rest(results, claims, lambda rest, at=source: self._claim_from(at, rest))  # type: ignore[misc]
            if None not in results:
                break
        return results

    def _sources(self, prefix: str, reservations: Sequence[str]) -> Iterator[Source]:
        """Where a claim searches, in this order. Other transactions may have locked rows that they
        will not lease: before the pool is reported as empty, it waits for them, without holding
        locks."""
        waits = self._database.concurrent_writers
        yield from (Source(prefix, each) for each in reservations)
        yield Source(prefix)
        if waits:
            yield Source(prefix, wait_for_locked=True)
        yield from (Source(prefix, each, wait_for_locked=waits) for each in reservations)

    async def _claim_from(self, source: Source, claims: Sequence[Claim]) -> Results:
        for _ in range(_ATTEMPTS):
            try:
                return await self._database.write(
                    lambda connection: claim_batch(connection, claims, source)
                )
            except (IntegrityError, StaleTransitionError):
                continue  # another process leased one of these keys; the next attempt finds it
        raise RowBusyError


async def _serve_rest(
    results: Results,
    claims: Sequence[Claim],
    claim: Callable[[Sequence[Claim]], Awaitable[Results]],
) -> Results:
    """Claim for those that have no result yet; returns what they got."""
    rest = [index for index, result in enumerate(results) if result is None]
    served = await claim([claims[index] for index in rest])
    for index, result in zip(rest, served, strict=True):
        results[index] = result
    return served
