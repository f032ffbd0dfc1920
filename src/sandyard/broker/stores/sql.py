"""The pool on SQLite or PostgreSQL.

The lease is the row itself: while it is `allocated`, a unique index over (track, key) holds it, so
row and lease cannot come apart. Concurrent claims travel together: one transaction finds their
leases, picks their sandboxes and commits once.
"""

from collections import defaultdict
from collections.abc import AsyncIterator, Iterable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import sqlalchemy as sa
from sqlalchemy.exc import IntegrityError

from sandyard.broker.errors import RowBusyError
from sandyard.broker.model import (
    Claim,
    Claimed,
    HeldLease,
    Lease,
    PoolTransition,
    Sandbox,
    Status,
    Tombstone,
)
from sandyard.broker.ports import PoolCounts
from sandyard.broker.stores.sql_claims import claim_batch
from sandyard.broker.stores.sql_pages import SqlPages
from sandyard.broker.stores.sql_rows import (
    STATUS_COUNT_LINES,
    apply_transitions,
    entry_of,
    fold_status_counts,
    lease_of,
    sandbox_of,
)
from sandyard.broker.stores.tables import (
    DELETED,
    SCHEMA,
    events,
    properties,
    sandboxes,
    status_counts,
)
from sandyard.kit.batching import Batcher
from sandyard.kit.events_sql import SqlEventLog
from sandyard.kit.migrations import Migrations
from sandyard.kit.paging import Page
from sandyard.kit.sql import Database, insert_or_ignore

MIGRATIONS = Migrations(SCHEMA, Path(__file__).parent / "migrations")

_PAGE = 1000
_CHUNK = 200
_LARGEST_BATCH = 64
_PARALLEL_BATCHES = 8
_PAUSE_SEC = 0.002
_ATTEMPTS = 10
_PROVIDER = "provider"

_column = sandboxes.c


class SqlPoolStore:
    def __init__(self, database: Database) -> None:
        self._database = database
        self.events = SqlEventLog(database, events, part=SCHEMA, subjects=[sandboxes.c.sandbox_id])
        self._pages = SqlPages(database)
        self._schema_checked = False
        self._claims: Batcher[Claim, Claimed | None] = Batcher(
            self._claim_together,
            key=lambda claim: claim.lease_key,
            parallel=_PARALLEL_BATCHES if database.concurrent_writers else 1,
            max_size=_LARGEST_BATCH,
            pause_sec=0 if database.concurrent_writers else _PAUSE_SEC,
        )

    async def start(self) -> None:
        """Nothing to do: the engine keeps claims apart."""

    async def claim(self, claim: Claim) -> Claimed | None:
        return await self._claims.submit(claim)

    async def _claim_together(self, claims: Sequence[Claim]) -> Sequence[Claimed | None]:
        """A transaction for each name prefix, the longest first: one that looked for rows twice
        could lease a row that another has added after it began, and tell of it before that one."""
        by_prefix: dict[str, list[int]] = defaultdict(list)
        for index, claim in enumerate(claims):
            by_prefix[claim.name_prefix].append(index)
        results: dict[int, Claimed | None] = {}
        for prefix in sorted(by_prefix, key=len, reverse=True):
            indexes = by_prefix[prefix]
            claimed = await self._claim_of_prefix([claims[index] for index in indexes])
            results |= zip(indexes, claimed, strict=True)
        return [results[index] for index in range(len(claims))]

    async def _claim_of_prefix(self, claims: Sequence[Claim]) -> Sequence[Claimed | None]:
        results = list(await self._claim_once(claims, wait_for_locked=False))
        left = [index for index, result in enumerate(results) if result is None]
        if left and self._database.concurrent_writers:
            # Other transactions may hold rows that they will not keep: wait for them, holding
            # nothing, before saying that the pool is empty.
            confirmed = await self._claim_once([claims[i] for i in left], wait_for_locked=True)
            for index, result in zip(left, confirmed, strict=True):
                results[index] = result
        return results

    async def _claim_once(
        self, claims: Sequence[Claim], *, wait_for_locked: bool
    ) -> Sequence[Claimed | None]:
        for _ in range(_ATTEMPTS):
            try:
                return await self._database.write(
                    lambda connection: claim_batch(connection, claims, wait_for_locked)
                )
            except IntegrityError:
                continue  # another process leased one of these keys meanwhile; now it is found
        raise RowBusyError

    async def find(self, sandbox_id: str) -> Sandbox | Tombstone | None:
        statement = sa.select(sandboxes).where(_column.sandbox_id == sandbox_id)
        row = await self._database.read(lambda connection: connection.execute(statement).first())
        return None if row is None else entry_of(row)

    async def find_lease(self, track_id: str, key: str) -> Lease | None:
        statement = sa.select(sandboxes).where(
            _column.lease_track == track_id, _column.lease_key == key
        )
        rows = await self._rows(statement)
        return lease_of(rows[0]) if rows else None

    async def apply(self, transitions: Sequence[PoolTransition]) -> Sequence[bool]:
        in_lock_order = sorted(
            range(len(transitions)), key=lambda index: _lock_order(transitions[index])
        )
        applied = [False] * len(transitions)
        for chunk in _chunks(in_lock_order):
            chosen = [transitions[index] for index in chunk]
            outcomes = await self._database.write(partial(apply_transitions, transitions=chosen))
            for index, outcome in zip(chunk, outcomes, strict=True):
                applied[index] = outcome
        return applied

    async def confirm_listed(self, sandbox_ids: Sequence[str], *, now: int) -> None:
        for chunk in _chunks(sandbox_ids):
            await self._execute(
                sandboxes.update()
                .where(
                    _column.sandbox_id.in_(chunk),
                    _column.allocated_at == 0,
                    _column.deletion_requested_at.is_(None),
                    _column.kept_until.is_(None),
                )
                .values(last_synced=now)
            )

    async def renew_tombstones(self, sandbox_ids: Sequence[str], *, kept_until: int) -> None:
        for chunk in _chunks(sandbox_ids):
            await self._execute(
                sandboxes.update()
                .where(_column.sandbox_id.in_(chunk), _column.kept_until.is_not(None))
                .values(kept_until=kept_until)
            )

    async def drop_tombstones(self, *, now: int) -> None:
        await self._execute(sandboxes.delete().where(_column.kept_until <= now))

    async def tombstoned(self, sandbox_ids: Sequence[str]) -> set[str]:
        found: set[str] = set()
        for chunk in _chunks(sandbox_ids):
            statement = sa.select(_column.sandbox_id).where(
                _column.sandbox_id.in_(chunk), _column.kept_until.is_not(None)
            )
            found.update(row.sandbox_id for row in await self._rows(statement))
        return found

    async def everything(self) -> AsyncIterator[Sequence[Sandbox]]:
        async for rows in self._all_rows():
            yield [sandbox_of(row) for row in rows if row.status != DELETED]

    async def audit(self) -> AsyncIterator[Sequence[Sandbox | HeldLease | Tombstone]]:
        async for rows in self._all_rows():
            leases = [
                HeldLease(row.allocated_to_track, row.idempotency_key, lease_of(row))
                for row in rows
                if row.status == Status.ALLOCATED
            ]
            yield [*map(entry_of, rows), *leases]

    async def _all_rows(self) -> AsyncIterator[Sequence[Any]]:
        last = ""
        while True:
            statement = (
                sa.select(sandboxes)
                .where(_column.sandbox_id > last)
                .order_by(_column.sandbox_id)
                .limit(_PAGE)
            )
            rows = await self._rows(statement)
            if not rows:
                return
            last = rows[-1].sandbox_id
            yield rows

    async def page(
        self,
        *,
        status: Status | None,
        limit: int,
        cursor: str | None,
        track: str | None = None,
        name_prefix: str = "",
    ) -> Page[Sandbox]:
        return await self._pages.page(
            status=status, track=track, name_prefix=name_prefix, limit=limit, cursor=cursor
        )

    async def overdue(
        self, *, ended_by: int, limit: int, after: Sandbox | None
    ) -> Sequence[Sandbox]:
        last = None if after is None else (after.expires_at, after.sandbox_id)
        return await self._due(_column.lease_ends_at, ended_by, limit, last)

    async def deletable(self, *, now: int, limit: int, after: Sandbox | None) -> Sequence[Sandbox]:
        last = None if after is None else (after.next_attempt_at, after.sandbox_id)
        return await self._due(_column.next_attempt_at, now, limit, last)

    async def _due(
        self,
        moment: sa.ColumnElement[int],
        until: int,
        limit: int,
        last: tuple[int | None, str] | None,
    ) -> Sequence[Sandbox]:
        statement = sa.select(sandboxes).where(moment <= until)
        if last is not None:
            statement = statement.where(sa.tuple_(moment, _column.sandbox_id) > sa.tuple_(*last))
        rows = await self._rows(statement.order_by(moment, _column.sandbox_id).limit(limit))
        return [sandbox_of(row) for row in rows]

    async def counts(self) -> PoolCounts:
        statement = sa.select(
            status_counts.c.status, sa.func.sum(status_counts.c.change), sa.func.count()
        ).group_by(status_counts.c.status)
        rows = await self._rows(statement)
        if sum(lines for _, _, lines in rows) > STATUS_COUNT_LINES:
            await self._database.write(fold_status_counts)
        sums = {status: int(total) for status, total, _ in rows}
        return PoolCounts({status: sums.get(status, 0) for status in Status}, counted_at=None)

    async def find_provider(self) -> str | None:
        statement = sa.select(properties.c.value).where(properties.c.name == _PROVIDER)
        return await self._database.read(lambda connection: connection.scalar(statement))

    async def set_provider(self, name: str, *, before: str | None) -> bool:
        def work(connection: sa.Connection) -> bool:
            if before is None:
                new = insert_or_ignore(connection, properties).values(name=_PROVIDER, value=name)
                return bool(connection.execute(new).rowcount == 1)
            unchanged = (properties.c.name == _PROVIDER, properties.c.value == before)
            change = properties.update().where(*unchanged).values(value=name)
            return connection.execute(change).rowcount == 1

        return await self._database.write(work)

    async def check(self) -> None:
        await self._database.check()
        if not self._schema_checked:
            await MIGRATIONS.require_head(self._database)
            self._schema_checked = True

    async def close(self) -> None:
        await self._database.close()

    async def _rows(self, statement: sa.Select[Any]) -> Sequence[Any]:
        return await self._database.read(lambda connection: connection.execute(statement).all())

    async def _execute(self, statement: sa.Executable) -> None:
        await self._database.write(lambda connection: connection.execute(statement))


def _chunks(items: Sequence[Any]) -> Iterable[Sequence[Any]]:
    return (items[start : start + _CHUNK] for start in range(0, len(items), _CHUNK))


def _lock_order(transition: PoolTransition) -> tuple[str, str]:
    row = transition.before or transition.after
    return (row.name if isinstance(row, Sandbox) else "", row.sandbox_id if row else "")
