"""The pool on SQLite or PostgreSQL.

The lease is the row itself: while it is `allocated`, a unique index over (track, key) holds it, so
row and lease cannot come apart. Concurrent claims travel together: one transaction finds their
leases, picks their sandboxes and commits once.
"""

from collections.abc import AsyncIterator, Iterable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import sqlalchemy as sa
from sqlalchemy.exc import IntegrityError

from sandyard.broker.errors import RowBusyError
from sandyard.broker.model import (
    Change,
    Claim,
    Claimed,
    HeldLease,
    Lease,
    Sandbox,
    Status,
    Tombstone,
)
from sandyard.broker.stores.sql_claims import claim_batch
from sandyard.broker.stores.sql_rows import (
    TALLY_LINES,
    add_rows,
    apply_changes,
    count,
    entry_of,
    fold_tally,
    lease_of,
    sandbox_of,
    unchanged,
)
from sandyard.broker.stores.tables import DELETED, SCHEMA, sandboxes, tally
from sandyard.kit.batching import Batcher
from sandyard.kit.migrations import Migrations
from sandyard.kit.paging import InvalidCursorError, Page, decode_cursor, encode_cursor
from sandyard.kit.sql import Database

MIGRATIONS = Migrations(SCHEMA, Path(__file__).parent / "migrations")

_PAGE = 1000
_CHUNK = 200
_LARGEST_BATCH = 64
_PARALLEL_BATCHES = 8
_PAUSE_SEC = 0.002
_ATTEMPTS = 10

_column = sandboxes.c


class SqlPoolStore:
    def __init__(self, database: Database) -> None:
        self._database = database
        self._schema_checked = False
        self._claims: Batcher[Claim, Claimed | None] = Batcher(
            self._claim_together,
            key=lambda claim: claim.lease_key,
            parallel=_PARALLEL_BATCHES if database.concurrent_writers else 1,
            max_size=_LARGEST_BATCH,
            pause_sec=0 if database.concurrent_writers else _PAUSE_SEC,
        )

    async def claim(self, claim: Claim) -> Claimed | None:
        return await self._claims.submit(claim)

    async def _claim_together(self, claims: Sequence[Claim]) -> Sequence[Claimed | None]:
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

    async def apply(self, changes: Sequence[Change]) -> Sequence[bool]:
        applied: dict[str, bool] = {}
        in_lock_order = sorted(changes, key=lambda c: (c.before.name, c.before.sandbox_id))
        for chunk in _chunks(in_lock_order):
            applied |= await self._database.write(partial(apply_changes, changes=chunk))
        return [applied[change.before.sandbox_id] for change in changes]

    async def bury(self, sandbox: Sandbox, tombstone: Tombstone) -> bool:
        statement = (
            sandboxes.update()
            .where(*unchanged(sandbox))
            .values(
                status=DELETED,
                lease_track=None,
                lease_key=None,
                lease_ends_at=None,
                next_attempt_at=None,
                deleted_at=tombstone.deleted_at,
                kept_until=tombstone.kept_until,
                updated_at=tombstone.deleted_at,
            )
        )

        def work(connection: sa.Connection) -> bool:
            buried = connection.execute(statement).rowcount == 1
            if buried:
                count(connection, {sandbox.status: -1})
            return buried

        return await self._database.write(work)

    async def add(self, new: Sequence[Sandbox]) -> int:
        added = 0
        for chunk in _chunks(new):
            added += await self._database.write(partial(add_rows, new=chunk))
        return added

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

    async def buried(self, sandbox_ids: Sequence[str]) -> set[str]:
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

    async def page(self, *, status: Status | None, limit: int, cursor: str | None) -> Page[Sandbox]:
        listing = f"sandboxes {status or 'all'}"
        order = (_column.name, _column.sandbox_id) if status else (_column.sandbox_id,)
        statement = sa.select(sandboxes).where(
            _column.status == status if status else _column.status != DELETED
        )
        if cursor is not None:
            position = decode_cursor(listing, cursor)
            if len(position) != len(order) or not all(isinstance(p, str) for p in position):
                raise InvalidCursorError
            statement = statement.where(sa.tuple_(*order) > sa.tuple_(*position))
        rows = await self._rows(statement.order_by(*order).limit(limit + 1))
        found = [sandbox_of(row) for row in rows[:limit]]
        if len(rows) <= limit:
            return Page(found, None)
        last = [getattr(found[-1], column.name) for column in order]
        return Page(found, encode_cursor(listing, last))

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

    async def counts(self) -> Mapping[Status, int]:
        statement = sa.select(
            tally.c.status, sa.func.sum(tally.c.change), sa.func.count()
        ).group_by(tally.c.status)
        rows = await self._rows(statement)
        if sum(lines for _, _, lines in rows) > TALLY_LINES:
            await self._database.write(fold_tally)
        sums = {status: int(total) for status, total, _ in rows}
        return {status: sums.get(status, 0) for status in Status}

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
