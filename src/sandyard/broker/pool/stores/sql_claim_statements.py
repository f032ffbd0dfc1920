"""A batch of claims as one statement, a transaction by itself or part of one with locks: a
compare-and-set on the sequences of the rows that writes them, their events and the counts."""

import sqlite3
from collections.abc import Sequence
from functools import cache, lru_cache
from operator import attrgetter
from typing import Any, cast

import sqlalchemy as sa

from sandyard.broker.pool.model import Claim, Sandbox, Status, decide_claim
from sandyard.broker.pool.stores.sql_rows import EVENTS, FIELDS, values_of
from sandyard.broker.stores.tables import events, sandboxes, status_counts
from sandyard.kit.changes.transitions import Transition
from sandyard.kit.sql.batches import BatchInsert, KeyLookup, array_rows, arrays_of, run_in_driver


def lease_decided(
    connection: sa.Connection, decided: Sequence[Transition[Sandbox]], *, free: Status
) -> set[str]:
    """Which of the sandboxes were leased; `free` is the status that they had. Skips sandboxes that
    have changed, and claims whose key has a lease."""
    rows = [_claimed_values(each.result) for each in decided]
    event_rows = EVENTS.rows([event for each in decided for event in each.events])
    if connection.dialect.name == "sqlite":
        return _lease_on_sqlite(connection, rows, event_rows, free)
    values = (*arrays_of(rows), *arrays_of(event_rows), free.value)
    cursor = run_in_driver(connection, _postgresql(connection.dialect), values)
    return {sandbox_id for (sandbox_id,) in cursor.fetchall()}


@lru_cache(maxsize=1)
def _postgresql(dialect: sa.Dialect) -> str:
    """Rows are locked before they are changed, so that locked ones are skipped, not waited for."""
    columns = _WRITTEN_COLUMNS
    event_columns = ", ".join(_EVENT_COLUMNS)
    assignments = ", ".join(f"{name} = leases.{name}" for name in columns[1:])
    arrays = array_rows(dialect, [sandboxes.c[name] for name in columns])
    event_arrays = array_rows(dialect, EVENTS.insert.columns, first=len(columns) + 1)
    status = f"${len(columns) + len(_EVENT_COLUMNS) + 1}::text"
    return f"""
        WITH leases ({", ".join(columns)}) AS (SELECT * FROM {arrays}),
        free AS (
            SELECT sandboxes.sandbox_id
            FROM leases JOIN {sandboxes.fullname} ON sandboxes.sandbox_id = leases.sandbox_id
            WHERE sandboxes.sequence = leases.sequence - 1
            AND NOT EXISTS (
                SELECT FROM {sandboxes.fullname} AS held
                WHERE held.lease_track = leases.lease_track AND held.lease_key = leases.lease_key)
            FOR UPDATE OF sandboxes SKIP LOCKED),
        claimed AS (
            UPDATE {sandboxes.fullname} SET {assignments} FROM leases JOIN free USING (sandbox_id)
            WHERE sandboxes.sandbox_id = leases.sandbox_id RETURNING sandboxes.sandbox_id),
        logged AS (
            INSERT INTO {events.fullname} ({event_columns})
            SELECT new.* FROM {event_arrays} AS new ({event_columns})
            JOIN claimed ON claimed.sandbox_id = new.subject),
        counted AS (
            INSERT INTO {status_counts.fullname} (status, change)
            SELECT status, change * number FROM (SELECT count(*) AS number FROM claimed) AS claims,
                (VALUES ({status}, -1), ('{Status.ALLOCATED}', 1)) AS of_one
                (status, change)
            WHERE number > 0)
        SELECT sandbox_id FROM claimed"""  # noqa: S608 - our own names


def _claimed_fields() -> tuple[str, ...]:
    """The fields that a claim changes, according to the model."""
    free = Sandbox("", "", "", Status.RESERVED, 1, 0, 0, reserved_for="r")
    claimed = decide_claim(free, Claim("t", "k", 1, track_name="n")).result
    before, after = values_of(free), values_of(claimed)
    return tuple(name for name in FIELDS if after[name] != before[name] and name != "status")


_CLAIMED = _claimed_fields()
_OF_LEASE = {
    "lease_track": "allocated_to_track",
    "lease_key": "idempotency_key",
    "lease_ends_at": "ends_at",
}
_read_values = attrgetter("sandbox_id", *_CLAIMED, *_OF_LEASE.values())
_WRITTEN_COLUMNS = ("sandbox_id", *_CLAIMED, *_OF_LEASE, "status")


def _claimed_values(claimed: Sandbox) -> tuple[Any, ...]:
    values: tuple[Any, ...] = _read_values(claimed)
    return (*values, claimed.status.value)


_EVENT_COLUMNS = tuple(each.name for each in EVENTS.insert.columns)
_LINES = {status: -number for number, status in enumerate(Status, 1)}
"""Ids of the count lines that claims on SQLite add to. SQLite has one writer, so nobody waits for
them."""
_EVENT = tuple(f"event_{name}" for name in _EVENT_COLUMNS)
_CLAIM_COLUMNS = (*_WRITTEN_COLUMNS, *_EVENT, "free", "free_line")
_claims = sa.Table("claims", sa.MetaData(), *(sa.Column(name) for name in _CLAIM_COLUMNS))
_CLAIMS = BatchInsert(_claims, _CLAIM_COLUMNS)
"""Each row of `claims` is a claim. SQLite has no statement that writes to several tables, so a
trigger does."""
_WRITES_OF_ONE = 4
_EVENT_ID = _EVENT_COLUMNS.index("event_id")
_WRITTEN = KeyLookup(events, "event_id", ("subject",))


def _lease_on_sqlite(
    connection: sa.Connection,
    rows: Sequence[tuple[Any, ...]],
    event_rows: Sequence[tuple[Any, ...]],
    free: Status,
) -> set[str]:
    driver = cast("sqlite3.Connection", connection.connection.dbapi_connection)
    if "claims" not in connection.info:
        for text in _sqlite_trigger():
            run_in_driver(connection, text, ())
        if not driver.in_transaction:  # else a rollback undoes it
            connection.info["claims"] = True
    before = driver.total_changes
    source = (free.value, _LINES[free])
    _CLAIMS.execute(
        connection, [(*row, *event, *source) for row, event in zip(rows, event_rows, strict=True)]
    )
    if driver.total_changes - before == _WRITES_OF_ONE * len(rows):
        return {row[0] for row in rows}
    # By event id: another change may have given the row the same sequence and the same lease.
    return {
        subject
        for (subject,) in _WRITTEN.rows(connection, [each[_EVENT_ID] for each in event_rows])
    }


@cache
def _sqlite_trigger() -> tuple[str, str]:
    """Temporary, per connection: not part of the file. `changes()` refers to the preceding
    statement."""
    assignments = ", ".join(f"{name} = NEW.{name}" for name in _WRITTEN_COLUMNS[1:])
    columns = ", ".join(f"NULL AS {name}" for name in _CLAIM_COLUMNS)
    counted = "INSERT INTO {} (id, status, change) SELECT {}, {}, {} WHERE changes()"
    added = "ON CONFLICT (id) DO UPDATE SET change = change + excluded.change"
    tally, leased = status_counts.name, Status.ALLOCATED
    return (
        f"CREATE TEMP VIEW IF NOT EXISTS claims AS SELECT {columns}",
        f"""
        CREATE TEMP TRIGGER IF NOT EXISTS lease INSTEAD OF INSERT ON claims BEGIN
            UPDATE sandboxes SET {assignments}
            WHERE sandbox_id = NEW.sandbox_id AND sequence = NEW.sequence - 1
            AND NOT EXISTS (
                SELECT 1 FROM sandboxes AS held
                WHERE held.lease_track = NEW.lease_track AND held.lease_key = NEW.lease_key);
            INSERT INTO events ({", ".join(_EVENT_COLUMNS)})
            SELECT {", ".join(f"NEW.{name}" for name in _EVENT)} WHERE changes();
            {counted.format(tally, "NEW.free_line", "NEW.free", -1)} {added};
            {counted.format(tally, _LINES[leased], f"'{leased}'", 1)} {added};
        END""",  # noqa: S608 - our own names
    )
