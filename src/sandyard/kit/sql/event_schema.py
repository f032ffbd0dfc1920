"""Helpers for migrations that add an event log: its table, and baselines of existing rows.

Released migrations call these, so they never change; a new form is a new function.
"""

from collections.abc import Sequence
from typing import Any

import orjson
import sqlalchemy as sa

from sandyard.kit.changes.transitions import json_value
from sandyard.kit.ids import EventIds, subject_key

_BATCH = 500


def create_event_table(op: Any, *, schema: str | None) -> None:
    """On PostgreSQL, `xid` is the id of the transaction that wrote the event."""
    is_postgres = op.get_bind().dialect.name == "postgresql"
    xid = sa.text("pg_current_xact_id()::text::bigint") if is_postgres else None
    op.create_table(
        "events",
        sa.Column(
            "position",
            sa.BigInteger().with_variant(sa.Integer, "sqlite"),
            primary_key=True,
            autoincrement=True,
        ),
        sa.Column("event_id", sa.String(26), nullable=False),
        sa.Column("subject", sa.String(128), nullable=False),
        sa.Column("subject_key", sa.BigInteger, nullable=False),
        sa.Column("sequence", sa.BigInteger),
        sa.Column("kind", sa.String(64), nullable=False),
        sa.Column("actor", sa.String(160), nullable=False),
        sa.Column("account_id", sa.String(12)),
        sa.Column("at_ms", sa.BigInteger, nullable=False),
        sa.Column("reason", sa.Text),
        sa.Column("effect", sa.String(8), nullable=False),
        sa.Column("data", sa.Text, nullable=False),
        sa.Column("xid", sa.BigInteger, server_default=xid),
        schema=schema,
        sqlite_autoincrement=True,
    )
    indexes = [
        ("events_by_time", ["event_id"]),
        ("events_by_subject", ["subject_key", "position"]),
        ("events_by_kind", ["kind", "event_id"]),
        ("events_by_actor", ["actor", "event_id"]),
        *([("events_by_commit", ["xid", "position"])] if is_postgres else []),
    ]
    for name, columns in indexes:
        op.create_index(name, "events", columns, schema=schema)


def index_events_by_account(op: Any, *, schema: str | None) -> None:
    """For parts whose subjects belong to accounts."""
    op.create_index("events_by_account", "events", ["account_id", "event_id"], schema=schema)


def add_sequence(op: Any, table: str, *, schema: str | None) -> None:
    """The number that a compare-and-set checks; existing rows start with their baseline."""
    sequence = sa.Column("sequence", sa.BigInteger, nullable=False, server_default="1")
    op.add_column(table, sequence, schema=schema)


def write_baseline(
    op: Any,
    table: sa.TableClause,
    *,
    subject: str,
    order: str,
    at_ms: int,
    account: str | None = None,
    where: sa.ColumnElement[bool] | None = None,
) -> None:
    """One event with the whole state of each row. `table` names the state columns with their types,
    and `sequence` if the rows already have one; `order` is a unique column to read by."""
    connection: sa.Connection = op.get_bind()
    events = sa.table(
        "events",
        *(sa.column(name) for name in _EVENT_COLUMNS),
        schema=table.schema,
    )
    make_id, last = EventIds(), None
    while True:
        page = sa.select(table).order_by(table.c[order]).limit(_BATCH)
        if where is not None:
            page = page.where(where)
        if last is not None:
            page = page.where(table.c[order] > last)
        rows = connection.execute(page).mappings().all()
        if not rows:
            return
        last = rows[-1][order]
        connection.execute(
            events.insert(),
            [_baseline(row, subject, account, make_id(at_ms), at_ms) for row in rows],
        )


_EVENT_COLUMNS: Sequence[str] = (
    "event_id",
    "subject",
    "subject_key",
    "sequence",
    "kind",
    "actor",
    "account_id",
    "at_ms",
    "effect",
    "data",
)


_NO_STATE = frozenset({"id", "sequence"})


def _baseline(
    row: Any, subject: str, account: str | None, event_id: str, at_ms: int
) -> dict[str, Any]:
    state = {name: json_value(value) for name, value in row.items() if name not in _NO_STATE}
    return {
        "event_id": event_id,
        "subject": row[subject],
        "subject_key": subject_key(row[subject]),
        "sequence": row.get("sequence", 1),
        "kind": "baseline",
        "actor": "system",
        "account_id": None if account is None else row[account],
        "at_ms": at_ms,
        "effect": "full",
        "data": orjson.dumps(state).decode(),
    }
