"""Tables, columns and indexes that several parts have."""

from typing import Any

import sqlalchemy as sa
from sqlalchemy.ext.compiler import compiles
from sqlalchemy.sql.functions import FunctionElement

from sandyard.kit.sql.column_types import BIG_ID, UtcTime, Varchar


def metadata_of(schema: str) -> sa.MetaData:
    """An index that has no name is named after its columns."""
    convention = {"ix": "%(table_name)s_%(column_0_N_name)s"}
    return sa.MetaData(schema=schema, naming_convention=convention)


def numbered_table(metadata: sa.MetaData, name: str, *parts: Any) -> sa.Table:
    """Its rows have an `id`."""
    return sa.Table(name, metadata, sa.Column("id", BIG_ID, primary_key=True), *parts)


def sequence() -> sa.Column[Any]:
    """The number that a compare-and-set checks."""
    return sa.Column("sequence", sa.BigInteger, nullable=False, server_default="1")


class _Now(FunctionElement[Any]):
    inherit_cache = True


@compiles(_Now)
def _now(_element: _Now, compiler: Any, **_options: Any) -> str:
    on_sqlite = "strftime('%Y-%m-%dT%H:%M:%f', 'now') || '000Z'"
    return on_sqlite if compiler.dialect.name == "sqlite" else "CURRENT_TIMESTAMP"


def made(*names: str) -> list[sa.Column[Any]]:
    """Times that are now if not given."""
    return [sa.Column(name, UtcTime, nullable=False, server_default=_Now()) for name in names]


def identity(name: str, size: int = 25) -> sa.Column[Any]:
    return sa.Column(name, Varchar(size), nullable=False, unique=True)


def required(kind: Any, *names: str) -> list[sa.Column[Any]]:
    return [sa.Column(name, kind, nullable=False) for name in names]


def optional(kind: Any, *names: str) -> list[sa.Column[Any]]:
    return [sa.Column(name, kind) for name in names]


def numbers(*names: str, kind: Any, default: str) -> list[sa.Column[Any]]:
    return [sa.Column(name, kind, nullable=False, server_default=default) for name in names]


def flag(name: str, *, default: bool = False) -> sa.Column[Any]:
    value = sa.true() if default else sa.false()
    return sa.Column(name, sa.Boolean, nullable=False, server_default=value)


def belongs_to(key: sa.Column[Any], name: str, **options: Any) -> sa.Column[Any]:
    """A foreign key."""
    return sa.Column(name, key.type, sa.ForeignKey(key), **{"nullable": False, **options})


def index(columns: str, *, name: str = "", where: str = "", unique: bool = False) -> sa.Index:
    """`columns` are separated by commas; an expression has parentheses."""
    only = sa.text(where) if where else None
    parts = [sa.text(part) if "(" in part else part for part in columns.split(", ")]
    return sa.Index(name or None, *parts, unique=unique, sqlite_where=only, postgresql_where=only)


def indexes(*each: str) -> list[sa.Index]:
    return [index(columns) for columns in each]


def unique_index(columns: str, name: str, where: str) -> sa.Index:
    return index(columns, name=name, where=where, unique=True)


_SET_XID = sa.DDL(  # type: ignore[no-untyped-call]
    "ALTER TABLE %(fullname)s ALTER COLUMN xid SET DEFAULT pg_current_xact_id()::text::bigint"
)


def event_table(metadata: sa.MetaData, *, of_accounts: bool = False) -> sa.Table:
    """`of_accounts`: its subjects belong to accounts. On PostgreSQL, `xid` is the id of the
    transaction that wrote the event."""
    table = sa.Table(
        "events",
        metadata,
        sa.Column("position", BIG_ID, primary_key=True, autoincrement=True),
        sa.Column("event_id", Varchar(26), nullable=False),
        sa.Column("subject", Varchar(128), nullable=False),
        sa.Column("subject_key", sa.BigInteger, nullable=False),
        sa.Column("sequence", sa.BigInteger),
        sa.Column("kind", Varchar(64), nullable=False),
        sa.Column("actor", Varchar(160), nullable=False),
        sa.Column("account_id", Varchar(12)),
        sa.Column("at_ms", sa.BigInteger, nullable=False),
        sa.Column("reason", sa.Text),
        sa.Column("effect", Varchar(8), nullable=False),
        sa.Column("data", sa.Text, nullable=False),
        sa.Column("xid", sa.BigInteger),
        index("event_id", name="events_by_time"),
        index("subject_key, position", name="events_by_subject"),
        index("kind, event_id", name="events_by_kind"),
        index("actor, event_id", name="events_by_actor"),
        index("xid, position", name="events_by_commit").ddl_if("postgresql"),
        *([index("account_id, event_id", name="events_by_account")] if of_accounts else ()),
        sqlite_autoincrement=True,
    )
    sa.event.listen(table, "after_create", _SET_XID.execute_if(dialect="postgresql"))
    return table
