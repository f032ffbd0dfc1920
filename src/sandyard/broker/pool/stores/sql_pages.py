"""Listings of the pool in SQL, for operators: each uses an index, whatever the filter."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import sqlalchemy as sa

from sandyard.broker.pool.filter_model import SandboxFilter
from sandyard.broker.pool.model import Sandbox, Status
from sandyard.broker.pool.stores.sql_rows import sandbox_of
from sandyard.broker.stores.tables import DELETED, sandboxes
from sandyard.kit.paging import InvalidCursorError, Page, decode_cursor, encode_cursor
from sandyard.kit.sql.database import Database

_column = sandboxes.c
_LONGEST = 128
"""The maximum length of an id or a track."""


@dataclass(frozen=True, slots=True)
class _Range:
    """A range of an index: its conditions, and the columns that order it."""

    conditions: Sequence[sa.ColumnElement[bool]]
    order: Sequence[sa.Column[Any]]


class SqlPages:
    def __init__(self, database: Database) -> None:
        self._database = database

    async def page(self, wanted: SandboxFilter, *, limit: int, cursor: str | None) -> Page[Sandbox]:
        listing = f"sandboxes {wanted}"
        ranges = _ranges(wanted)
        number, position = 0, None
        if cursor is not None:
            number, position = _position(decode_cursor(listing, cursor), ranges)
        found: list[Sandbox] = []
        while number < len(ranges):
            rows = await self._rows(ranges[number], limit + 1 - len(found), position)
            found += [sandbox_of(row) for row in rows]
            if len(found) > limit:
                # The extra row may be the first of its range.
                last = [getattr(found[limit - 1], c.name) for c in ranges[number].order]
                follows = last if len(rows) > 1 else None
                return Page(found[:limit], encode_cursor(listing, [number, follows]))
            number, position = number + 1, None
        return Page(found, None)

    async def _rows(
        self, part: _Range, limit: int, position: Sequence[str] | None
    ) -> Sequence[Any]:
        statement = sa.select(sandboxes).where(*part.conditions)
        if position is not None:
            statement = statement.where(sa.tuple_(*part.order) > sa.tuple_(*position))
        statement = statement.order_by(*part.order).limit(limit)
        return await self._database.read(lambda connection: connection.execute(statement).all())


def name_range(prefix: str) -> list[sa.ColumnElement[bool]]:
    """The names with this prefix, as a range of the index."""
    return [_column.name >= prefix, _column.name < past(prefix)] if prefix else []


def past(prefix: str) -> str:
    """The smallest string greater than all with this prefix."""
    return prefix[:-1] + chr(ord(prefix[-1]) + 1)


def _ranges(wanted: SandboxFilter) -> list[_Range]:
    if wanted.search:
        return _searched(wanted)
    if wanted.track is not None:
        of_track = _column.allocated_to_track == wanted.track
        return [_Range([of_track, *_hidden(wanted)], [_column.sandbox_id])]
    if wanted.status is None and not wanted.name_prefix:
        return [_Range([_column.status != DELETED], [_column.sandbox_id])]
    return [_of_names(each, wanted.name_prefix) for each in _states(wanted)]


def _states(wanted: SandboxFilter) -> list[Status]:
    return list(Status) if wanted.status is None else [wanted.status]


def _of_names(status: Status, prefix: str, *others: sa.ColumnElement[bool]) -> _Range:
    conditions = [_column.status == status, *name_range(prefix), *others]
    return _Range(conditions, [_column.name, _column.sandbox_id])


def _hidden(wanted: SandboxFilter) -> list[sa.ColumnElement[bool]]:
    """Conditions besides a track or id, which has few rows. They are hidden from the planner, which
    would otherwise prefer the index on the status."""
    kept, track = sa.func.coalesce(_column.status, ""), _column.allocated_to_track
    return [
        kept != DELETED if wanted.status is None else kept == wanted.status,
        _begins(_column.name, wanted.name_prefix),
        *([] if wanted.track is None else [sa.func.coalesce(track, "") == wanted.track]),
    ]


def _searched(wanted: SandboxFilter) -> list[_Range]:
    """By id, by track and by name, each along its index; each skips rows that an earlier one
    finds."""
    sought, track, by_id = wanted.search, _column.allocated_to_track, _column.sandbox_id
    others = _hidden(wanted)
    not_by_id = sa.not_(_begins(by_id, sought))
    not_by_track = sa.not_(sa.func.coalesce(_begins(track, sought), sa.false()))
    return [
        _Range([*_range_of(by_id, sought), *others], [by_id]),
        _Range([*_range_of(track, sought), not_by_id, *others], [track, by_id]),
        *(_of_names(each, sought, not_by_id, not_by_track, *others) for each in _states(wanted)),
    ]


def _range_of(column: sa.Column[Any], prefix: str) -> list[sa.ColumnElement[bool]]:
    """The ids or tracks with this prefix. They consist of letters, digits and a few other
    characters, of which `z` sorts last in every locale; anything else in the range is filtered
    out."""
    last = prefix + "z" * (_LONGEST + 1)
    return [column >= prefix, column < last, _begins(column, prefix)]


def _begins(column: sa.Column[Any], prefix: str) -> sa.ColumnElement[bool]:
    return sa.func.substr(column, 1, len(prefix)) == prefix


def _position(position: list[Any], ranges: Sequence[_Range]) -> tuple[int, Sequence[str] | None]:
    match position:
        case [int() as number, None] if 0 <= number < len(ranges):
            return number, None
        case [int() as number, list() as last] if (
            0 <= number < len(ranges)
            and len(last) == len(ranges[number].order)
            and all(isinstance(each, str) for each in last)
        ):
            return number, last
        case _:
            raise InvalidCursorError
