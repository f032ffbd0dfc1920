"""Column types with the same meaning on SQLite and PostgreSQL."""

from collections.abc import Mapping
from dataclasses import fields
from datetime import UTC, date, datetime, time
from decimal import Decimal
from types import MappingProxyType, NoneType
from typing import Any, get_args, get_type_hints

import orjson
import sqlalchemy as sa
from sqlalchemy.ext.compiler import compiles
from sqlalchemy.types import TypeDecorator, TypeEngine

from sandyard.kit.clock import ms_from_rfc3339, rfc3339_from_ms

MONEY_PLACES = 6
_MILLIONTH = Decimal(1).scaleb(-MONEY_PLACES)

BIG_ID = sa.BigInteger().with_variant(sa.Integer, "sqlite")
"""An autoincrement key; SQLite supports that only for `INTEGER`."""


class Varchar(sa.String):
    """Text of limited length. Only the table knows the limit: PostgreSQL would cut a parameter
    that is cast to it."""

    def __init__(self, size: int | None = None, *, byte_ordered: bool = False) -> None:
        """`byte_ordered`: its order does not depend on the database's locale, for pages and
        ranges."""
        super().__init__()
        self.size = size
        self.byte_ordered = byte_ordered


@compiles(Varchar)
def _varchar(kind: Varchar, compiler: Any, **_options: Any) -> str:
    size = "" if kind.size is None else f"({kind.size})"
    is_ordered = kind.byte_ordered and compiler.dialect.name == "postgresql"
    return f"VARCHAR{size}" + ' COLLATE "C"' * is_ordered


def cast_type(kind: TypeEngine[Any], dialect: sa.Dialect) -> str:
    """What a parameter of a column is cast to."""
    return "VARCHAR" if isinstance(kind, Varchar) else kind.compile(dialect)


def byte_ordered(size: int | None = None) -> Varchar:
    return Varchar(size, byte_ordered=True)


class Money(TypeDecorator[Decimal]):
    """An exact amount with six decimal places.

    NUMERIC(18, 6) on PostgreSQL. SQLite has no decimals, so it stores integer millionths, which SUM
    adds up exactly too.
    """

    impl = sa.Numeric(18, MONEY_PLACES).with_variant(sa.BigInteger, "sqlite")
    cache_ok = True

    @property
    def python_type(self) -> type[Decimal]:
        return Decimal

    def process_bind_param(self, value: Any, dialect: sa.Dialect) -> Any:
        if value is None:
            return None
        exact = Decimal(value)
        if exact != exact.quantize(_MILLIONTH):
            raise ValueError(f"{value} has more than {MONEY_PLACES} decimal places")
        return int(exact.scaleb(MONEY_PLACES)) if dialect.name == "sqlite" else exact

    def process_result_value(self, value: Any, dialect: sa.Dialect) -> Decimal | None:
        if value is None:
            return None
        if dialect.name == "sqlite":
            return Decimal(int(value)).scaleb(-MONEY_PLACES)
        return Decimal(value).quantize(_MILLIONTH)


class Exact(TypeDecorator[Decimal]):
    """A decimal number of any length, as text."""

    impl = Varchar(64)
    cache_ok = True

    def process_bind_param(self, value: Decimal | None, dialect: sa.Dialect) -> str | None:  # noqa: ARG002
        return None if value is None else f"{value:f}"

    def process_result_value(self, value: Any, dialect: sa.Dialect) -> Decimal | None:  # noqa: ARG002
        return None if value is None else Decimal(value)


class UtcTime(TypeDecorator[datetime]):
    """A timezone-aware time, always UTC in Python.

    TIMESTAMP WITH TIME ZONE on PostgreSQL; on SQLite a fixed-width text, which sorts
    chronologically.
    """

    impl = sa.DateTime(timezone=True).with_variant(sa.String(27), "sqlite")
    cache_ok = True

    @property
    def python_type(self) -> type[datetime]:
        return datetime

    def process_bind_param(self, value: datetime | None, dialect: sa.Dialect) -> Any:
        if value is None:
            return None
        if value.tzinfo is None:
            raise ValueError("a time without a zone")
        utc = value.astimezone(UTC)
        return _text(utc) if dialect.name == "sqlite" else utc

    def process_result_value(self, value: Any, dialect: sa.Dialect) -> datetime | None:
        if value is None:
            return None
        if dialect.name == "sqlite":
            return datetime.fromisoformat(value)
        at: datetime = value
        return at.astimezone(UTC)


class UtcDay(TypeDecorator[date]):
    """A UTC day, stored as the time at which it begins."""

    impl = UtcTime
    cache_ok = True

    @property
    def python_type(self) -> type[date]:
        return date

    def process_bind_param(self, value: date | None, dialect: sa.Dialect) -> Any:
        del dialect
        return None if value is None else datetime.combine(value, time(), tzinfo=UTC)

    def process_result_value(self, value: datetime | None, dialect: sa.Dialect) -> date | None:
        del dialect
        return None if value is None else value.date()


class Rfc3339(TypeDecorator[int]):
    """Epoch milliseconds in Python; a text such as `2024-01-15T10:30:00Z` in the table, in whole
    seconds. It sorts chronologically."""

    impl = sa.String(20)
    cache_ok = True

    @property
    def python_type(self) -> type[int]:
        return int

    def process_bind_param(self, value: int | None, dialect: sa.Dialect) -> str | None:
        del dialect
        return None if value is None else rfc3339_from_ms(value)

    def process_result_value(self, value: str | None, dialect: sa.Dialect) -> int | None:
        del dialect
        return None if value is None else ms_from_rfc3339(value)


class Json(TypeDecorator[Any]):
    """JSON that statements can query; JSONB on PostgreSQL. None is NULL."""

    impl = sa.JSON(none_as_null=True)
    cache_ok = True

    def load_dialect_impl(self, dialect: sa.Dialect) -> TypeEngine[Any]:
        if dialect.name == "sqlite":
            return dialect.type_descriptor(sa.JSON(none_as_null=True))
        from sqlalchemy.dialects.postgresql import JSONB  # not imported on SQLite

        return dialect.type_descriptor(JSONB(none_as_null=True))

    def coerce_compared_value(self, op: Any, value: Any) -> Any:
        """Compared values, such as a path, are not JSON."""
        return self.impl_instance.coerce_compared_value(op, value)


class JsonText(TypeDecorator[Any]):
    """JSON as text, also for statements that go directly to the driver."""

    impl = sa.Text
    cache_ok = True

    def process_bind_param(self, value: Any, dialect: sa.Dialect) -> str | None:  # noqa: ARG002
        return None if value is None else orjson.dumps(value).decode()

    def process_result_value(self, value: Any, dialect: sa.Dialect) -> Any:  # noqa: ARG002
        return None if value is None else orjson.loads(value)


_COLUMN_TYPES: dict[type, type[TypeEngine[Any]]] = {
    bool: sa.Boolean,
    int: sa.BigInteger,
    float: sa.Float,
    list: JsonText,
    dict: JsonText,
}


def columns_of(
    kind: type,
    /,
    *,
    primary_key: tuple[str, ...] = (),
    defaults: Mapping[str, str] = MappingProxyType({}),
    **types: TypeEngine[Any] | type[TypeEngine[Any]],
) -> list[sa.Column[Any]]:
    """A column for each field of a dataclass, by its type, unless `types` names another; everything
    else is text. It is required unless the field may be None. The key is that of the argument, or
    the subject of an entity."""
    hints = get_type_hints(kind)
    primary_key = primary_key or (kind.SUBJECT,)  # type: ignore[attr-defined]
    return [
        sa.Column(
            each.name,
            types.get(each.name) or _column_type(hints[each.name]),
            primary_key=each.name in primary_key,
            autoincrement=False,
            nullable=NoneType in get_args(hints[each.name]),
            server_default=defaults.get(each.name),
        )
        for each in fields(kind)
    ]


def _column_type(hint: Any) -> type[TypeEngine[Any]]:
    """Optional values have the type of the others."""
    plain = getattr(hint, "__origin__", None) or next(iter(get_args(hint)), hint)
    return _COLUMN_TYPES.get(plain, sa.String)


def _text(utc: datetime) -> str:
    """Fixed width also for years before 1000, which strftime does not pad."""
    return utc.isoformat(timespec="microseconds").replace("+00:00", "Z")


def unix_seconds(connection: sa.Connection, time: sa.Column[datetime]) -> sa.ColumnElement[int]:
    if connection.dialect.name == "sqlite":  # it would round fractional seconds
        to_second = sa.func.substr(time, 1, 19, type_=sa.String)
        return sa.cast(sa.func.strftime("%s", to_second, type_=sa.String), sa.BigInteger)
    return sa.cast(sa.func.floor(sa.extract("epoch", time)), sa.BigInteger)
