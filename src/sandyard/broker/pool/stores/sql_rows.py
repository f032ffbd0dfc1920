"""Rows of the pool in SQL: reading them, and writing them together with the status counts."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict, fields
from operator import attrgetter
from typing import Any

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
from sandyard.kit.sql.batches import BatchInsert
from sandyard.kit.sql.database import insert_or_ignore
from sandyard.kit.sql.events import EventWriter

EVENTS = EventWriter(events)
COUNT_LINES = BatchInsert(status_counts, ("status", "change"))

STATUS_COUNT_LINES = 500
"""If there are more lines, they are merged at the next count."""

_column = sandboxes.c
_FIELDS = tuple(each.name for each in fields(Sandbox))
_read_fields = attrgetter(*_FIELDS)


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
    if not new:
        return set()
    inserted = connection.execute(
        insert_or_ignore(connection, sandboxes).returning(_column.sandbox_id),
        [values_of(each) for each in new if each is not None],
    )
    return {row.sandbox_id for row in inserted}


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
    values = dict(zip(_FIELDS, _read_fields(row), strict=True))
    values["status"] = Status(row.status)
    values["stale_reason"] = StaleReason(row.stale_reason) if row.stale_reason else None
    return Sandbox(**values)


def lease_of(row: Any) -> Lease:
    return Lease(row.sandbox_id, row.name, row.external_id, row.allocated_at, row.lease_ends_at)


def values_of(entry: Sandbox | Tombstone) -> dict[str, Any]:
    """The columns of a row; a tombstone leaves the others unchanged."""
    if isinstance(entry, Tombstone):
        return asdict(entry) | _TOMBSTONE | {"updated_at": entry.deleted_at}
    held = entry.status is Status.ALLOCATED
    return {name: getattr(entry, name) for name in _FIELDS} | {
        "lease_track": entry.allocated_to_track if held else None,
        "lease_key": entry.idempotency_key if held else None,
        "lease_ends_at": entry.expires_at if held else None,
    }


_TOMBSTONE = {
    "status": DELETED,
    "lease_track": None,
    "lease_key": None,
    "lease_ends_at": None,
    "next_attempt_at": None,
}
