"""What the migrations of every part use: the event log, the job leases, tables and indexes.

Released migrations call these, so they never change; a new form is a new function.
"""

import random
import time
from collections.abc import Callable
from typing import Any

import sqlalchemy as sa
from alembic import op
from sqlalchemy import exc
from sqlalchemy.dialects.postgresql import JSONB

from sandyard.kit.errors import UnavailableError

BIG_ID = sa.BigInteger().with_variant(sa.Integer, "sqlite")
TIME = sa.DateTime(timezone=True).with_variant(sa.String(27), "sqlite")
MONEY = sa.Numeric(18, 6).with_variant(sa.BigInteger, "sqlite")
JSON = sa.JSON().with_variant(JSONB(), "postgresql")


_WAIT_MS = 200
"""Shorter than the second after which PostgreSQL checks for deadlocks and aborts a transaction."""
_TRIES = 200
_NOT_AVAILABLE = "55P03"


def schema() -> str:
    return str(op.get_context().version_table_schema)


def is_postgres() -> bool:
    return op.get_context().dialect.name == "postgresql"


def byte_ordered(length: int | None = None) -> Any:
    """A string whose order does not depend on the database's locale, for pages and ranges."""
    return sa.String(length).with_variant(sa.String(length, collation="C"), "postgresql")


def sequence() -> sa.Column[Any]:
    """The number that a compare-and-set checks."""
    return sa.Column("sequence", sa.BigInteger, nullable=False, server_default="1")


def made(*names: str) -> list[sa.Column[Any]]:
    """Times that are now if not given."""
    on_sqlite = "(strftime('%Y-%m-%dT%H:%M:%f', 'now') || '000Z')"
    now = sa.text("CURRENT_TIMESTAMP" if is_postgres() else on_sqlite)
    return [sa.Column(name, TIME, nullable=False, server_default=now) for name in names]


def optional(kind: Any, *names: str) -> list[sa.Column[Any]]:
    return [sa.Column(name, kind) for name in names]


def numbers(*names: str, kind: Any, default: str) -> list[sa.Column[Any]]:
    return [sa.Column(name, kind, nullable=False, server_default=default) for name in names]


def flag(name: str, *, default: bool = False) -> sa.Column[Any]:
    value = sa.true() if default else sa.false()
    return sa.Column(name, sa.Boolean, nullable=False, server_default=value)


def belongs_to(name: str, key: str, *, length: int, required: bool = True) -> sa.Column[Any]:
    """A foreign key to `table.column` of the same schema."""
    target = sa.ForeignKey(f"{schema()}.{key}")
    return sa.Column(name, sa.String(length), target, nullable=not required)


def create_table(name: str, *columns: Any, **options: Any) -> None:
    op.create_table(name, *columns, schema=schema(), **options)


def create_numbered_table(name: str, *columns: Any) -> None:
    """Its rows have an `id`."""
    create_table(name, sa.Column("id", BIG_ID, primary_key=True), *columns)


def create_index(
    table: str, columns: str, *, name: str = "", where: str = "", unique: bool = False
) -> None:
    """`columns` are separated by commas; an expression has parentheses."""
    only = sa.text(where) if where else None
    parts = [sa.text(part) if "(" in part else part for part in columns.split(", ")]
    op.create_index(
        name or f"{table}_{columns.replace(', ', '_')}",
        table,
        parts,
        unique=unique,
        schema=schema(),
        sqlite_where=only,
        postgresql_where=only,
    )


def create_indexes(table: str, *each: str) -> None:
    for columns in each:
        create_index(table, columns)


def create_unique_index(table: str, columns: str, name: str, where: str) -> None:
    create_index(table, columns, name=name, where=where, unique=True)


def drop_tables(*names: str) -> None:
    for name in names:
        op.drop_table(name, schema=schema())


def create_job_table() -> None:
    create_table(
        "jobs",
        sa.Column("job", sa.String(64), primary_key=True),
        sa.Column("holder", sa.String(64)),
        sa.Column("held_until", sa.Double),
        sa.Column("started_at", sa.Double),
        sa.Column("finished_at", sa.Double),
    )


def create_idempotency_table() -> None:
    create_table(
        "idempotency_records",
        sa.Column("record_id", sa.String(64), primary_key=True),
        sa.Column("request_hash", sa.String(64), nullable=False),
        sa.Column("content", sa.Text, nullable=False),
        sa.Column("holder", sa.String(64), nullable=False),
        sa.Column("held_until", sa.Double, nullable=False),
        sa.Column("expires_at", sa.Double, nullable=False),
        sa.Column("status", sa.Integer),
    )
    create_index("idempotency_records", "expires_at")


def create_event_table(*, of_accounts: bool = False) -> None:
    """`of_accounts`: its subjects belong to accounts. On PostgreSQL, `xid` is the id of the
    transaction that wrote the event."""
    xid = sa.text("pg_current_xact_id()::text::bigint") if is_postgres() else None
    create_table(
        "events",
        sa.Column("position", BIG_ID, primary_key=True, autoincrement=True),
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
        sqlite_autoincrement=True,
    )
    create_index("events", "event_id", name="events_by_time")
    create_index("events", "subject_key, position", name="events_by_subject")
    create_index("events", "kind, event_id", name="events_by_kind")
    create_index("events", "actor, event_id", name="events_by_actor")
    if is_postgres():
        create_index("events", "xid, position", name="events_by_commit")
    if of_accounts:
        create_index("events", "account_id, event_id", name="events_by_account")


def lock_tables(connection: sa.Connection, *names: str) -> None:
    """Lock these tables until the transaction ends; other users of them wait.

    Servers use several tables in varying order. So locks are held only briefly while waiting for
    the rest; then all are released for the next attempt.
    """
    for _ in range(_TRIES):
        try:
            with connection.begin_nested():
                connection.exec_driver_sql(f"SET LOCAL lock_timeout = '{_WAIT_MS}ms'")
                connection.exec_driver_sql(f"LOCK TABLE {', '.join(names)}")
                connection.exec_driver_sql("SET LOCAL lock_timeout TO DEFAULT")
        except exc.DBAPIError as error:
            if getattr(error.orig, "sqlstate", None) != _NOT_AVAILABLE:
                raise
            time.sleep(random.uniform(0.05, 0.2))  # noqa: S311 - no secret
        else:
            return
    raise UnavailableError(
        "The tables are locked by other transactions. Try again when there is less load."
    )


def edit_definition(table: str, change: Callable[[str], str]) -> None:
    """SQLite has no statement that changes a table's constraints. By its documentation, a change
    that leaves the stored rows valid may be made to the text of the table's definition."""
    bind, master = op.get_bind(), f"{schema()}.sqlite_master"
    where = "WHERE type = 'table' AND name = ?"
    found = bind.exec_driver_sql(f"SELECT sql FROM {master} {where}", (table,))  # noqa: S608 - ours
    [sql] = found.scalars().all()
    version = bind.exec_driver_sql(f"PRAGMA {schema()}.schema_version").scalar_one()
    bind.exec_driver_sql("PRAGMA writable_schema = ON")
    bind.exec_driver_sql(f"UPDATE {master} SET sql = ? {where}", (change(sql), table))  # noqa: S608
    bind.exec_driver_sql(f"PRAGMA {schema()}.schema_version = {version + 1}")
    bind.exec_driver_sql("PRAGMA writable_schema = RESET")
