"""Rows of the pool in SQL: reading them, and writing them together with the status counts."""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, fields
from operator import attrgetter
from typing import Any, TypeVar

import sqlalchemy as sa

from sandyard.broker.pool.model import (
    Lease,
    PoolTransition,
    Sandbox,
    StaleReason,
    Status,
    Tombstone,
)
from sandyard.broker.stores.tables import DELETED, events, sandboxes, status_counts
from sandyard.kit.changes.frozen import fast_constructor
from sandyard.kit.sql.batches import BatchInsert
from sandyard.kit.sql.database import Database, insert_or_ignore
from sandyard.kit.sql.events import EventWriter

T = TypeVar("T")

EVENTS = EventWriter(events)
COUNT_LINES = BatchInsert(status_counts, ("status", "change"))

STATUS_COUNT_LINES = 500
"""If there are more lines, they are merged at the next count."""

_CHUNK = 200

_column = sandboxes.c
FIELDS = tuple(each.name for each in fields(Sandbox))
_STATUS, _STALE_REASON = FIELDS.index("status"), FIELDS.index("stale_reason")
_STATES = {status.value: status for status in Status}
_REASONS: dict[str | None, StaleReason | None] = {
    None: None,
    **{reason.value: reason for reason in StaleReason},
}
_read_fields = attrgetter(*FIELDS)
_make_sandbox = fast_constructor(Sandbox)


class SqlReads:
    """What the parts of the pool's store have in common."""

    _database: Database

    async def _rows(
        self, statement: sa.Select[Any], values: Mapping[str, str] | None = None
    ) -> Sequence[Any]:
        return await self._database.read(lambda c: c.execute(statement, values).all())

    async def _execute(self, statement: sa.Executable) -> None:
        await self._database.write(lambda connection: connection.execute(statement))


def chunks(items: Sequence[T]) -> Iterable[Sequence[T]]:
    return (items[start : start + _CHUNK] for start in range(0, len(items), _CHUNK))


def apply_transitions(
    connection: sa.Connection, transitions: Sequence[PoolTransition]
) -> list[bool]:
    """Apply transitions with their events and count changes; returns which were applied."""
    added = _insert(connection, [each.after for each in transitions if each.before is None])
    outcomes = [_is_applied(connection, each, added) for each in transitions]
    applied = [each for each, done in zip(transitions, outcomes, strict=True) if done]
    EVENTS.write(connection, [event for each in applied for event in each.events])
    count(connection, _moves(applied))
    return outcomes


def _is_applied(connection: sa.Connection, transition: PoolTransition, added: set[str]) -> bool:
    before, after = transition.before, transition.result
    if before is None:
        is_new = after.sandbox_id in added
        added.discard(after.sandbox_id)
        return is_new
    old, new = values_of(before), values_of(after)
    changes = {name: value for name, value in new.items() if old.get(name) != value}
    unchanged = (_column.sandbox_id == before.sandbox_id, _column.sequence == before.sequence)
    update = sandboxes.update().where(*unchanged).values(changes)
    return connection.execute(update).rowcount == 1


def _insert(connection: sa.Connection, new: Sequence[Sandbox | Tombstone | None]) -> set[str]:
    """Insert rows whose ids are neither known nor tombstoned; returns the inserted ids."""
    rows = [values_of(each) for each in new if isinstance(each, Sandbox)]
    gone = [values_of(each) | _UNKNOWN for each in new if isinstance(each, Tombstone)]
    inserted: set[str] = set()
    for each in filter(None, (rows, gone)):
        insert = insert_or_ignore(connection, sandboxes).returning(_column.sandbox_id)
        inserted.update(connection.scalars(insert, each))
    return inserted


def _moves(applied: Sequence[PoolTransition]) -> Counter[str]:
    moves: Counter[str] = Counter()
    for each in applied:
        if isinstance(each.before, Sandbox):
            moves[each.before.status] -= 1
        if isinstance(each.after, Sandbox):
            moves[each.after.status] += 1
    return moves


def count(connection: sa.Connection, changes: Mapping[str, int]) -> None:
    lines = [(str(status), n) for status, n in changes.items() if n]
    if lines:
        COUNT_LINES.execute(connection, lines)


def fold_status_counts(connection: sa.Connection) -> None:
    """Replace the oldest lines by their sums; a line is added only by the transaction that deletes
    it."""
    oldest = (
        sa.select(status_counts.c.id).order_by(status_counts.c.id).limit(20 * STATUS_COUNT_LINES)
    )
    lines = connection.execute(
        status_counts.delete()
        .where(status_counts.c.id.in_(oldest))
        .returning(status_counts.c.status, status_counts.c.change)
    )
    sums: Counter[str] = Counter()
    for status, change in lines:
        sums[status] += change
    count(connection, sums)


def entry_of(row: Any) -> Sandbox | Tombstone:
    if row.status != DELETED:
        return sandbox_of(row)
    return Tombstone(**{each.name: getattr(row, each.name) for each in fields(Tombstone)})


def sandbox_of(row: Any) -> Sandbox:
    return read_sandbox(_read_fields(row))


def read_sandbox(row: Sequence[Any]) -> Sandbox:
    """The columns are in the order of the fields."""
    values = list(row)
    values[_STATUS] = _STATES[values[_STATUS]]
    values[_STALE_REASON] = _REASONS[values[_STALE_REASON]]
    return _make_sandbox(*values)


def lease_of(row: Any) -> Lease:
    return Lease(row.sandbox_id, row.name, row.external_id, row.allocated_at, row.lease_ends_at)


def values_of(entry: Sandbox | Tombstone) -> dict[str, Any]:
    """The columns of a row; a tombstone leaves the others unchanged."""
    if isinstance(entry, Tombstone):
        return asdict(entry) | _TOMBSTONE | {"updated_at": entry.deleted_at}
    held = entry.status is Status.ALLOCATED
    return {name: getattr(entry, name) for name in FIELDS} | {
        "lease_track": entry.allocated_to_track if held else None,
        "lease_key": entry.idempotency_key if held else None,
        "lease_ends_at": entry.expires_at if held else None,
    }


_UNKNOWN = {
    "name": "",
    "lab_duration_hours": 0.0,
    "allocated_at": 0,
    "probe_failures": 0,
    "deletion_retry_count": 0,
    "created_at": 0,
}
"""What a tombstone does not have that comes without its sandbox, from another engine."""

_TOMBSTONE = {
    "status": DELETED,
    "lease_track": None,
    "lease_key": None,
    "lease_ends_at": None,
    "next_attempt_at": None,
}
