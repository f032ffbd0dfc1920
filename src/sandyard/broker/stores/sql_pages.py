"""Listings of the pool in SQL, for operators: each goes along an index, whatever is asked for."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import sqlalchemy as sa

from sandyard.broker.model import Sandbox, Status
from sandyard.broker.stores.sql_rows import sandbox_of
from sandyard.broker.stores.tables import DELETED, sandboxes
from sandyard.kit.paging import InvalidCursorError, Page, decode_cursor, encode_cursor
from sandyard.kit.sql.database import Database

_column = sandboxes.c


@dataclass(frozen=True, slots=True)
class _Range:
    """A part of an index: which rows, and the columns that they are in order of."""

    conditions: Sequence[sa.ColumnElement[bool]]
    order: Sequence[sa.Column[Any]]


class SqlPages:
    def __init__(self, database: Database) -> None:
        self._database = database

    async def page(
        self,
        *,
        status: Status | None,
        track: str | None,
        name_prefix: str,
        limit: int,
        cursor: str | None,
    ) -> Page[Sandbox]:
        listing = f"sandboxes {status} {track} {name_prefix}"
        ranges = _ranges(status, track, name_prefix)
        number, position = 0, None
        if cursor is not None:
            number, position = _position(decode_cursor(listing, cursor), ranges)
        found: list[Sandbox] = []
        while number < len(ranges):
            rows = await self._rows(ranges[number], limit + 1 - len(found), position)
            found += [sandbox_of(row) for row in rows]
            if len(found) > limit:
                # The row that is one too many may be the first of its range.
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
    """The names that begin so, as a range of the index."""
    return [_column.name >= prefix, _column.name < past(prefix)] if prefix else []


def past(prefix: str) -> str:
    """The least string that is greater than all that begin with `prefix`."""
    return prefix[:-1] + chr(ord(prefix[-1]) + 1)


def _ranges(status: Status | None, track: str | None, prefix: str) -> list[_Range]:
    if track is not None:
        return [_of_track(status, track, prefix)]
    if status is None and not prefix:
        return [_Range([_column.status != DELETED], [_column.sandbox_id])]
    states = list(Status) if status is None else [status]
    order = [_column.name, _column.sandbox_id]
    return [_Range([_column.status == each, *name_range(prefix)], order) for each in states]


def _of_track(status: Status | None, track: str, prefix: str) -> _Range:
    """A track has few sandboxes. What else is asked for is hidden from the planner, which would
    rather go along the index of the states."""
    kept = sa.func.coalesce(_column.status, "")
    conditions = [
        _column.allocated_to_track == track,
        kept != DELETED if status is None else kept == status,
        sa.func.substr(_column.name, 1, len(prefix)) == prefix,
    ]
    return _Range(conditions, [_column.sandbox_id])


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
