"""Batches of claims in SQL: from prefetched rows by compare-and-set, the others with locks."""

from collections import defaultdict
from collections.abc import Awaitable, Callable, Iterator, Sequence

from sqlalchemy.exc import IntegrityError

from sandyard.broker.pool.errors import RowBusyError
from sandyard.broker.pool.model import Claim, Claimed
from sandyard.broker.pool.stores.sql_claims import Source, claim_batch, lease_key
from sandyard.broker.pool.stores.sql_prefetch import PrefetchedClaims
from sandyard.kit.concurrency.batching import Batcher
from sandyard.kit.sql.database import Database

_LARGEST_BATCH = 64
_PARALLEL_BATCHES = 8
_PAUSE_SEC = 0.0001
"""The time that the event loop takes to answer a caller and read its next request."""
_ATTEMPTS = 10
_MOST_PREFETCHED = 50

Results = list[Claimed | None]


def claim_batcher(database: Database) -> Batcher[Claim, Claimed | None]:
    """Claims that wait at the same time share a statement or a transaction."""
    return Batcher(
        ClaimBatches(database).claim,
        key=lease_key,
        parallel=_PARALLEL_BATCHES if database.concurrent_writers else 1,
        max_size=_LARGEST_BATCH,
        pause_sec=0 if database.concurrent_writers else _PAUSE_SEC,
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
        for name_prefix, reservations in sorted(groups, key=_prefix_length, reverse=True):
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
            if len(self._prefetched) > _MOST_PREFETCHED:
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
            except IntegrityError:
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


def _prefix_length(group: tuple[str, tuple[str, ...]]) -> int:
    return len(group[0])
