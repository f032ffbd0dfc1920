"""Listings of the pool in SQL, for operators: each uses an index, whatever the filter."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import sqlalchemy as sa

from sandyard.broker.pool.model import Sandbox, Status
from sandyard.broker.pool.ports import SandboxFilter, Sort
from sandyard.broker.pool.stores.sql_rows import SqlReads, sandbox_of
from sandyard.broker.stores.tables import DELETED, sandboxes
from sandyard.kit.paging import InvalidCursorError, Page, decode_cursor, encode_cursor

_column = sandboxes.c
_BY_NAME = (_column.name, _column.sandbox_id)
_BY_END = (Sort.EXPIRES_AT, Sort.EXPIRES_AT_DESCENDING)
_LONGEST = 128
"""The maximum length of an id or a track."""


@dataclass(frozen=True, slots=True)
class _Range:
    """Ranges of an index, which are merged: the conditions of each, and the columns that order
    them."""

    alternatives: Sequence[Sequence[sa.ColumnElement[bool]]]
    order: Sequence[sa.Column[Any]]
    is_descending: bool = False

    def rows_after(self, position: Sequence[Any] | None, limit: int) -> sa.Select[Any]:
        """Each range is read no further than the page needs."""
        here = sa.tuple_(*self.order)
        past = []
        if position is not None:
            last = sa.tuple_(*position)
            past.append(here < last if self.is_descending else here > last)
        parts = [
            sa.select(sandboxes).where(*each, *past).order_by(*self._in_order(_column)).limit(limit)
            for each in self.alternatives
        ]
        merged = sa.union_all(*(each.subquery().select() for each in parts)).subquery()
        return sa.select(merged).order_by(*self._in_order(merged.c)).limit(limit)

    def _in_order(self, columns: Any) -> list[sa.ColumnElement[Any]]:
        chosen = [columns[each.name] for each in self.order]
        return [each.desc() for each in chosen] if self.is_descending else chosen


class SqlPages(SqlReads):
    """The listings of a pool's store."""

    async def page(self, wanted: SandboxFilter, *, limit: int, cursor: str | None) -> Page[Sandbox]:
        listing = f"sandboxes {wanted}"
        ranges = _ranges(wanted)
        number, position = 0, None
        if cursor is not None:
            number, position = _position(decode_cursor(listing, cursor), ranges)
        found: list[Sandbox] = []
        while number < len(ranges):
            wanted_rows = ranges[number].rows_after(position, limit + 1 - len(found))
            rows = await self._rows(wanted_rows)
            found += [sandbox_of(row) for row in rows]
            if len(found) > limit:
                # The extra row may be the first of its range.
                last = [_value(found[limit - 1], c.name) for c in ranges[number].order]
                follows = last if len(rows) > 1 else None
                return Page(found[:limit], encode_cursor(listing, [number, follows]))
            number, position = number + 1, None
        return Page(found, None)


def _value(row: Sandbox, column: str) -> Any:
    return row.lease.expires_at if column == _column.lease_ends_at.name else getattr(row, column)


def past(prefix: str) -> str:
    """The smallest string greater than all with this prefix."""
    return prefix[:-1] + chr(ord(prefix[-1]) + 1)


def _ranges(wanted: SandboxFilter) -> list[_Range]:
    if wanted.search:
        return _searched(wanted)
    is_descending = wanted.sort is not None and wanted.sort.is_descending
    if wanted.track is not None:
        of_track = _column.allocated_to_track == wanted.track
        return [_Range([[of_track, *_hidden(wanted)]], _BY_NAME, is_descending)]
    states = _states(wanted)
    if wanted.sort in _BY_END and Status.ALLOCATED in states:
        states.remove(Status.ALLOCATED)
        leased = [_column.lease_ends_at >= 0, _begins(_column.name, wanted.name_prefix)]
        by_end = _Range([leased], [_column.lease_ends_at, _column.sandbox_id], is_descending)
        return [
            by_end,
            *(
                [_of_names(states, wanted.name_prefix, is_descending=is_descending)]
                if states
                else []
            ),
        ]
    return [_of_names(states, wanted.name_prefix, is_descending=is_descending)]


def _states(wanted: SandboxFilter) -> list[Status]:
    return list(Status) if wanted.status is None else [wanted.status]


def _of_names(
    states: Sequence[Status],
    prefix: str,
    *,
    is_descending: bool = False,
    others: Sequence[sa.ColumnElement[bool]] = (),
) -> _Range:
    names = [*others]
    if prefix:
        names += [_column.name >= prefix, _column.name < past(prefix)]
    return _Range([[_column.status == each, *names] for each in states], _BY_NAME, is_descending)


def _hidden(wanted: SandboxFilter) -> list[sa.ColumnElement[bool]]:
    """Conditions besides a track or id, which has few rows. They are hidden from the planner, which
    would otherwise prefer the index on the status."""
    status, track = sa.func.coalesce(_column.status, ""), _column.allocated_to_track
    return [
        status != DELETED if wanted.status is None else status == wanted.status,
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
        _Range([[*_range_of(by_id, sought), *others]], [by_id]),
        _Range([[*_range_of(track, sought), not_by_id, *others]], [track, by_id]),
        _of_names(_states(wanted), sought, others=[not_by_id, not_by_track, *others]),
    ]


def _range_of(column: sa.Column[Any], prefix: str) -> list[sa.ColumnElement[bool]]:
    """The ids or tracks with this prefix. They consist of letters, digits and a few other
    characters, of which `z` sorts last in every locale; anything else in the range is filtered
    out."""
    last = prefix + "z" * (_LONGEST + 1)
    return [column >= prefix, column < last, _begins(column, prefix)]


def _begins(column: sa.Column[Any], prefix: str) -> sa.ColumnElement[bool]:
    return sa.func.substr(column, 1, len(prefix)) == prefix


def _position(position: list[Any], ranges: Sequence[_Range]) -> tuple[int, Sequence[Any] | None]:
    match position:
        case [int() as number, None] if 0 <= number < len(ranges):
            return number, None
        case [int() as number, list() as last] if (
            0 <= number < len(ranges)
            and len(last) == len(ranges[number].order)
            and all(isinstance(each, str | int) for each in last)
        ):
            return number, last
        case _:
            raise InvalidCursorError
