"""The pool on SQLite or PostgreSQL.

The lease is the row itself: while it is `allocated`, a unique index over (track, key) enforces it,
so row and lease cannot diverge. Concurrent claims are batched: one statement, or one transaction,
for all that wait.
"""

from collections.abc import AsyncIterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import sqlalchemy as sa

from sandyard.broker.pool.model import (
    UNUSED,
    Claim,
    Claimed,
    HeldLease,
    Lease,
    PoolTransition,
    Sandbox,
    Status,
    Tombstone,
)
from sandyard.broker.pool.ports import PoolCounts
from sandyard.broker.pool.stores import sql_rows
from sandyard.broker.pool.stores.sql_claim_batches import claim_batcher
from sandyard.broker.pool.stores.sql_pages import SqlPages
from sandyard.broker.queue.stores.sql import SqlQueue
from sandyard.broker.reservations.stores.sql import SqlReservations
from sandyard.broker.stores import tables
from sandyard.kit.changes.transitions import E, Transition
from sandyard.kit.sql.database import Database
from sandyard.kit.sql.entities import find_entity
from sandyard.kit.sql.events import SqlEventLog
from sandyard.kit.sql.keyset import batches
from sandyard.kit.sql.migrations import Migrations
from sandyard.kit.sql.transitions import EntityTable, SqlTransitions, StaleTransitionError

MIGRATIONS = Migrations(tables.metadata, Path(__file__).parent / "migrations")

_PAGE = 250
"""Of a list of all rows: what reads it takes some 10 ms for a page, while claims wait."""

_OTHERS: Mapping[type, EntityTable[Any]] = {
    each.entity: each
    for each in (
        *(tables.BINDINGS, tables.TICKETS, tables.WEBHOOKS, tables.CLIENTS),
        *(tables.RESERVATIONS, tables.CALENDARS, tables.AUTOSCALERS),
    )
}
"""The tables of all entities besides sandboxes."""

_column = tables.sandboxes.c
_LEASE = sa.select(tables.sandboxes).where(
    _column.lease_track == sa.bindparam("of_track"), _column.lease_key == sa.bindparam("of_key")
)


class SqlPoolStore(SqlPages, SqlQueue, SqlReservations):
    def __init__(self, database: Database) -> None:
        self._database = database
        subjects = [_column.sandbox_id, *(each.subject for each in _OTHERS.values())]
        self.events = SqlEventLog(database, tables.events, part=tables.SCHEMA, subjects=subjects)
        self._others = SqlTransitions(database, [*_OTHERS.values()], sql_rows.EVENTS)
        self._schema_checked = False
        self._claims = claim_batcher(database)

    async def start(self) -> None:
        """Nothing to do: the engine isolates claims."""

    async def claim(self, claim: Claim) -> Claimed | None:
        return await self._claims.submit(claim)

    async def find(self, sandbox_id: str) -> Sandbox | Tombstone | None:
        rows = await self._rows(sa.select(tables.sandboxes).where(_column.sandbox_id == sandbox_id))
        return sql_rows.entry_of(rows[0]) if rows else None

    async def find_lease(self, track_id: str, key: str) -> Lease | None:
        rows = await self._rows(_LEASE, {"of_track": track_id, "of_key": key})
        return sql_rows.lease_of(rows[0]) if rows else None

    async def apply(self, transitions: Sequence[PoolTransition]) -> Sequence[bool]:
        in_lock_order = sorted(
            range(len(transitions)), key=lambda index: _lock_order(transitions[index])
        )
        applied = [False] * len(transitions)
        for chunk in sql_rows.chunks(in_lock_order):
            chosen = [transitions[index] for index in chunk]
            outcomes = await self._database.write(
                partial(sql_rows.apply_transitions, transitions=chosen)
            )
            for index, outcome in zip(chunk, outcomes, strict=True):
                applied[index] = outcome
        return applied

    async def apply_together(self, *transitions: Transition[Any]) -> bool:
        try:
            await self._database.write(lambda connection: self._write(connection, transitions))
        except (StaleTransitionError, sa.exc.IntegrityError):
            return False
        return True

    def _write(self, connection: sa.Connection, transitions: Sequence[Transition[Any]]) -> None:
        rows = [each for each in transitions if _is_of_sandbox(each)]
        self._others.write(connection, [each for each in transitions if not _is_of_sandbox(each)])
        if not all(sql_rows.apply_transitions(connection, rows)):
            raise StaleTransitionError

    async def confirm_listed(self, sandbox_ids: Sequence[str], *, now: int) -> None:
        for chunk in sql_rows.chunks(sandbox_ids):
            await self._execute(
                tables.sandboxes.update()
                .where(
                    _column.sandbox_id.in_(chunk),
                    sa.func.coalesce(_column.status, "").in_(UNUSED),  # avoids its index
                )
                .values(last_synced=now)
            )

    async def renew_tombstones(self, sandbox_ids: Sequence[str], *, kept_until: int) -> None:
        for chunk in sql_rows.chunks(sandbox_ids):
            await self._execute(
                tables.sandboxes.update()
                .where(_column.sandbox_id.in_(chunk), _column.kept_until.is_not(None))
                .values(kept_until=kept_until)
            )

    async def drop_tombstones(self, *, now: int) -> None:
        await self._execute(tables.sandboxes.delete().where(_column.kept_until <= now))

    async def tombstoned(self, sandbox_ids: Sequence[str]) -> set[str]:
        found: set[str] = set()
        for chunk in sql_rows.chunks(sandbox_ids):
            statement = sa.select(_column.sandbox_id).where(
                _column.sandbox_id.in_(chunk), _column.kept_until.is_not(None)
            )
            found.update(row.sandbox_id for row in await self._rows(statement))
        return found

    async def everything(self) -> AsyncIterator[Sequence[Sandbox]]:
        async for rows in self._all_rows():
            yield [sql_rows.sandbox_of(row) for row in rows if row.status != tables.DELETED]

    async def audit(self) -> AsyncIterator[Sequence[Sandbox | HeldLease | Tombstone]]:
        async for rows in self._all_rows():
            leases = [
                HeldLease(row.allocated_to_track, row.idempotency_key, sql_rows.lease_of(row))
                for row in rows
                if row.status == Status.ALLOCATED
            ]
            yield [*map(sql_rows.entry_of, rows), *leases]

    def _all_rows(self) -> AsyncIterator[Sequence[Any]]:
        statement = sa.select(tables.sandboxes)
        return batches(self._database, statement, _column.sandbox_id, limit=_PAGE)

    def overdue(self, *, ended_by: int, size: int = 100) -> AsyncIterator[Sequence[Sandbox]]:
        return self._due(_column.lease_ends_at, ended_by, size)

    def deletable(self, *, now: int, size: int = 100) -> AsyncIterator[Sequence[Sandbox]]:
        return self._due(_column.next_attempt_at, now, size)

    async def _due(
        self, moment: sa.Column[int], until: int, size: int
    ) -> AsyncIterator[Sequence[Sandbox]]:
        due, key = sa.select(tables.sandboxes).where(moment <= until), (moment, _column.sandbox_id)
        async for rows in batches(self._database, due, *key, limit=size):
            yield [sql_rows.sandbox_of(row) for row in rows]

    async def counts(self) -> PoolCounts:
        statement = sa.select(
            tables.status_counts.c.status,
            sa.func.sum(tables.status_counts.c.change),
            sa.func.count(),
        ).group_by(tables.status_counts.c.status)
        rows = await self._rows(statement)
        if sum(lines for _, _, lines in rows) > sql_rows.STATUS_COUNT_LINES:
            await self._database.write(sql_rows.fold_status_counts)
        sums = {status: int(total) for status, total, _ in rows}
        return PoolCounts({status: sums.get(status, 0) for status in Status}, counted_at=None)

    async def find_single(self, kind: type[E]) -> E | None:
        return await find_entity(self._database, _OTHERS[kind])

    async def check(self) -> None:
        await self._database.check()
        if not self._schema_checked:
            await MIGRATIONS.require_head(self._database)
            self._schema_checked = True

    async def close(self) -> None:
        await self._database.close()


def _lock_order(transition: PoolTransition) -> tuple[str, str]:
    row = transition.before or transition.after
    return (row.name if isinstance(row, Sandbox) else "", row.sandbox_id if row else "")


def _is_of_sandbox(transition: Transition[Any]) -> bool:
    return isinstance(transition.before or transition.after, Sandbox | Tombstone)
