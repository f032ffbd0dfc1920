"""Rows of the pool in SQL: what they mean, and the writes that keep the tally right."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any

import sqlalchemy as sa

from sandyard.broker.model import GUARDED, Change, Lease, Sandbox, StaleReason, Status, Tombstone
from sandyard.broker.stores.tables import DELETED, sandboxes, tally
from sandyard.kit.sql import Prepared, insert_or_ignore

TALLY_LINES = 500
"""More than these are folded together when they are next counted."""

_column = sandboxes.c
_FIELDS = tuple(Sandbox.__dataclass_fields__)
_ADD_LINE = Prepared(
    tally.insert().values(status=sa.bindparam("status"), change=sa.bindparam("change")).inline()
)


def apply_changes(connection: sa.Connection, changes: Sequence[Change]) -> dict[str, bool]:
    outcomes: dict[str, bool] = {}
    moved: Counter[str] = Counter()
    for change in changes:
        before, after = change.before, change.after
        done = connection.execute(
            sandboxes.update().where(*unchanged(before)).values(values_of(after))
        )
        outcomes[before.sandbox_id] = done.rowcount == 1
        if done.rowcount == 1 and before.status != after.status:
            moved[before.status] -= 1
            moved[after.status] += 1
    count(connection, moved)
    return outcomes


def add_rows(connection: sa.Connection, new: Sequence[Sandbox]) -> int:
    inserted = connection.execute(
        insert_or_ignore(connection, sandboxes).returning(_column.status),
        [values_of(sandbox) for sandbox in new],
    )
    added = Counter(row.status for row in inserted)
    count(connection, added)
    return added.total()


def unchanged(before: Sandbox) -> list[sa.ColumnElement[bool]]:
    guards = [_column[name].is_not_distinct_from(getattr(before, name)) for name in GUARDED]
    return [_column.sandbox_id == before.sandbox_id, *guards]


def count(connection: sa.Connection, changes: Mapping[str, int]) -> None:
    lines = [{"status": str(status), "change": n} for status, n in changes.items() if n]
    if lines:
        _ADD_LINE.execute(connection, *lines)


def fold_tally(connection: sa.Connection) -> None:
    """Replace the oldest lines by their sums; whoever deletes a line is the one who adds it up."""
    oldest = sa.select(tally.c.id).order_by(tally.c.id).limit(20 * TALLY_LINES)
    lines = connection.execute(
        tally.delete().where(tally.c.id.in_(oldest)).returning(tally.c.status, tally.c.change)
    )
    sums: Counter[str] = Counter()
    for status, change in lines:
        sums[status] += change
    count(connection, sums)


def entry_of(row: Any) -> Sandbox | Tombstone:
    if row.status != DELETED:
        return sandbox_of(row)
    return Tombstone(
        sandbox_id=row.sandbox_id,
        external_id=row.external_id,
        allocated_to_track=row.allocated_to_track,
        deletion_requested_at=row.deletion_requested_at,
        deleted_at=row.deleted_at,
        kept_until=row.kept_until,
    )


def sandbox_of(row: Any) -> Sandbox:
    values = {name: getattr(row, name) for name in _FIELDS}
    values["status"] = Status(row.status)
    values["stale_reason"] = StaleReason(row.stale_reason) if row.stale_reason else None
    return Sandbox(**values)


def lease_of(row: Any) -> Lease:
    return Lease(row.sandbox_id, row.name, row.external_id, row.allocated_at, row.lease_ends_at)


def values_of(sandbox: Sandbox) -> dict[str, Any]:
    held = sandbox.status is Status.ALLOCATED
    return asdict(sandbox) | {
        "lease_track": sandbox.allocated_to_track if held else None,
        "lease_key": sandbox.idempotency_key if held else None,
        "lease_ends_at": sandbox.expires_at if held else None,
    }
