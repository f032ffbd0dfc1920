"""Arguments and options of the fields of an operation."""

import json
import re
from collections.abc import Mapping
from datetime import UTC, date, datetime, timedelta
from typing import TYPE_CHECKING, Any

import click

if TYPE_CHECKING:
    from sandyard_client.operations import Operation

    from sandyard.entrypoints.cli.calls.row import Row

_NULL = "null"
_SPAN = re.compile(r"(\d+(?:\.\d+)?)(d|h|m|s)?")
_UNITS = {"d": 86_400, "h": 3_600, "m": 60, "s": 1}
_TIMES = ("from", "to", "until")
_MILLISECONDS = "/telemetry/"
_KEY_HELP = "Idempotency key; a repeat with the same key within 24 hours has no second effect."


def parameters(row: "Row", operation: "Operation") -> list[click.Parameter]:
    """For each field that the command does not set; none for the place in a listing."""
    named = row.arguments.split()
    fields = [each for each in operation["fields"] if each["name"] not in row.fixed]
    first = [each for each in fields if each["in"] == "path" or each["name"] in named]
    made: list[click.Parameter] = [_argument(each, operation) for each in first]
    made += [
        _option(row, each, operation)
        for each in fields
        if each not in first and not _is_limit(operation, each)
    ]
    if "listing" in operation:
        text = "Maximum number of items; default: all."
        made.append(click.Option(["--limit"], type=click.IntRange(1), help=text))
    made += [click.Option([f"--{name}"], is_flag=True) for name in row.flags]
    if row.is_raw:
        made.append(click.Argument(["to_file"], metavar="[OUTPUT]", default="-"))
    if operation.get("is_keyed"):
        made.append(click.Option(["--key"], help=_KEY_HELP))
    return made


def values_of(operation: "Operation", given: Mapping[str, Any]) -> dict[str, Any]:
    """The fields by their names in the document; those that were not given are left out."""
    known = {_destination(each["name"]): each["name"] for each in operation["fields"]}
    values = {known[name]: each for name, each in given.items() if each not in (None, ())}
    return {name: _sent(each) for name, each in values.items()}


def _sent(value: Any) -> Any:
    if value == _NULL:
        return None
    if value == (_NULL,):
        return []
    if isinstance(value, tuple):
        pairs = [each for each in value if isinstance(each, _Pair)]
        return dict(pairs) if pairs else list(value)
    return value


def _is_limit(operation: "Operation", field: Mapping[str, Any]) -> bool:
    return "listing" in operation and field["name"] == "limit"


def _destination(name: str) -> str:
    """Apart from the names of the options of every command."""
    return f"field_{name}".lower()


def _shown(name: str) -> str:
    return name.removesuffix("_id").replace("_", "-")


def _argument(field: Mapping[str, Any], operation: "Operation") -> click.Argument:
    is_many = field["type"] == "array"
    return click.Argument(
        [_destination(field["name"])],
        metavar=_shown(field["name"]).upper() + ("..." if is_many else ""),
        type=_type(field, operation),
        nargs=-1 if is_many else 1,
        required=field.get("required", False),
    )


def _option(row: "Row", field: Mapping[str, Any], operation: "Operation") -> click.Option:
    name = row.renamed.get(field["name"], _shown(field["name"]))
    text = field.get("description", "")
    is_flag = field["type"] == "boolean" and not field.get("nullable")
    is_many = field["type"] in ("array", "object")
    many = "; may be repeated" * is_many + ", null: none" * (field["type"] == "array")
    return click.Option(
        [_destination(field["name"]), f"--{name}/--no-{name}" if is_flag else f"--{name}"],
        type=None if is_flag else _type(field, operation),
        default=row.defaults.get(field["name"]),
        show_default=True,
        multiple=is_many,
        required=field["name"] in row.needed
        or (field.get("required", False) and field["name"] not in row.defaults),
        help=f"{text.splitlines()[0].rstrip('.')}{many}." if text else None,
    )


def _type(field: Mapping[str, Any], operation: "Operation") -> click.ParamType[Any]:
    kind = field["type"]
    about = {**field, **field.get("items", {})} if kind == "array" else field
    if kind == "object":
        return _Pairs()
    if about.get("format") == "date-time" or (
        field["name"] in _TIMES and kind in ("integer", "string")
    ):
        return _Instant(kind, 1000 if _MILLISECONDS in operation["path"] else 1)
    is_nullable = about.get("nullable") or kind == "array"
    if about.get("choices"):
        return click.Choice([*about["choices"], *([_NULL] if is_nullable else [])])
    plain = _PLAIN.get(about["type"], click.STRING)
    return _Nullable(plain) if is_nullable and plain is not click.STRING else plain


class _Nullable(click.ParamType[Any]):
    """A value of another type, or `null`."""

    def __init__(self, of: click.ParamType[Any]) -> None:
        self.name = of.name
        self._of = of

    def convert(
        self, value: Any, param: click.Parameter | None, context: click.Context | None
    ) -> Any:
        return value if value == _NULL else self._of.convert(value, param, context)


class _Json(click.ParamType[Any]):
    """JSON, or text that is none."""

    name = "json"

    def convert(
        self, value: Any, _param: click.Parameter | None, _context: click.Context | None
    ) -> Any:
        try:
            return json.loads(value)
        except ValueError:
            return value


_PLAIN: Mapping[str, click.ParamType[Any]] = {
    "integer": click.INT,
    "number": click.FLOAT,
    "boolean": click.BOOL,
    "object": _Json(),
    "any": _Json(),
}


class _Pair(tuple[str, str]):
    """A name and its value."""

    __slots__ = ()


class _Pairs(click.ParamType[Any]):
    name = "name=value"

    def convert(
        self, value: Any, param: click.Parameter | None, context: click.Context | None
    ) -> Any:
        name, equals, text = str(value).partition("=")
        if not equals:
            self.fail("must be NAME=VALUE", param, context)
        return _Pair((name, text))


class _Instant(click.ParamType[Any]):
    """A date or time in this computer's zone, or how long from now: `2026-12-24`, `90m`, `30d`. A
    bare number is that of the document (seconds, milliseconds), or else of days from now."""

    name = "time"

    def __init__(self, kind: str, per_second: int) -> None:
        self._kind = kind
        self._per_second = per_second

    def convert(
        self, value: Any, param: click.Parameter | None, context: click.Context | None
    ) -> Any:
        if value == _NULL:
            return value
        span = _SPAN.fullmatch(value)
        if self._kind == "integer" and value.isdigit():
            return int(value)
        try:
            at = _in(span[1], span[2]) if span else _local(value)
        except (ValueError, OverflowError):
            self.fail(
                f"{value!r} is not a time: such as 2026-12-24T18:00, 90m or 30d", param, context
            )
        if self._kind == "integer":
            return int(at.timestamp() * self._per_second)
        return at.isoformat()


def _in(amount: str, unit: str | None) -> datetime:
    return datetime.now(UTC) + timedelta(seconds=float(amount) * _UNITS[unit or "d"])


def _local(text: str) -> datetime:
    at = datetime.fromisoformat(text) if len(text) > 10 else date.fromisoformat(text)
    whole = at if isinstance(at, datetime) else datetime(at.year, at.month, at.day)  # noqa: DTZ001
    return whole.astimezone(UTC)
