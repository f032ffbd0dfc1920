"""The pool on SQLite or PostgreSQL.

The lease is the row itself: while it is `allocated`, a unique index over (track, key) enforces it,
so row and lease cannot diverge. Concurrent claims are batched: one statement, or one transaction,
for all that wait.
"""

from collections.abc import AsyncIterator, Iterable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import sqlalchemy as sa

from sandyard.broker.pool.filter_model import SandboxFilter
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
from sandyard.broker.pool.stores.sql_claim_batches import claim_batcher
from sandyard.broker.pool.stores.sql_pages import SqlPages
from sandyard.broker.pool.stores.sql_rows import (
    STATUS_COUNT_LINES,
    apply_transitions,
    entry_of,
    fold_status_counts,
    lease_of,
    sandbox_of,
)
from sandyard.broker.provider.autoscaling_model import Autoscaler
from sandyard.broker.provider.model import ProviderBinding
from sandyard.broker.queue.stores.sql import SqlQueue
from sandyard.broker.reservations.stores.sql import SqlReservations
from sandyard.broker.stores.sql_apply import AUTOSCALERS, BINDINGS, SqlTogether
from sandyard.broker.stores.tables import (
    DELETED,
    SCHEMA,
    autoscalers,
    bindings,
    calendars,
    clients,
    events,
    reservations,
    sandboxes,
    status_counts,
    tickets,
    webhooks,
)
from sandyard.kit.changes.transitions import Transition
from sandyard.kit.paging import Page
from sandyard.kit.sql.database import Database
from sandyard.kit.sql.entities import find_entity
from sandyard.kit.sql.events import SqlEventLog
from sandyard.kit.sql.migrations import Migrations

MIGRATIONS = Migrations(SCHEMA, Path(__file__).parent / "migrations")

_PAGE = 1000
_CHUNK = 200

_SUBJECTS = [
    sandboxes.c.sandbox_id,
    bindings.c.pool,
    tickets.c.ticket_id,
    webhooks.c.webhook_id,
    clients.c.client_id,
    reservations.c.reservation_id,
    calendars.c.calendar,
    autoscalers.c.autoscaler,
]

_column = sandboxes.c


class SqlPoolStore(SqlQueue, SqlReservations):
    def __init__(self, database: Database) -> None:
        self._database = database
        self.events = SqlEventLog(database, events, part=SCHEMA, subjects=_SUBJECTS)
        self._together = SqlTogether(database)
        self._pages = SqlPages(database)
        self._schema_checked = False
        self._claims = claim_batcher(database)

    async def start(self) -> None:
        """Nothing to do: the engine isolates claims."""

    async def claim(self, claim: Claim) -> Claimed | None:
        return await self._claims.submit(claim)

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

    async def apply_together(self, *transitions: Transition[Any]) -> bool:
        return await self._together.apply(transitions)

    async def confirm_listed(self, sandbox_ids: Sequence[str], *, now: int) -> None:
        for chunk in _chunks(sandbox_ids):
            await self._execute(
                sandboxes.update()
                .where(
                    _column.sandbox_id.in_(chunk),
                    sa.func.coalesce(_column.status, "").in_(UNUSED),  # avoids its index
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

    async def page(self, where: SandboxFilter, *, limit: int, cursor: str | None) -> Page[Sandbox]:
        return await self._pages.page(where, limit=limit, cursor=cursor)

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

    async def find_autoscaler(self) -> Autoscaler | None:
        return await find_entity(self._database, AUTOSCALERS)

    async def find_provider(self) -> ProviderBinding | None:
        return await find_entity(self._database, BINDINGS)

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
