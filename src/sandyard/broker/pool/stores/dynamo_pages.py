"""Listings of the pool on DynamoDB, for operators: index queries, never a scan.

A search matches whole ids and tracks, which are keys, and prefixes of names.
"""

from collections.abc import Sequence
from typing import Any

from sandyard.broker.pool.model import Sandbox, Status
from sandyard.broker.pool.ports import SandboxFilter, Sort
from sandyard.broker.pool.stores.dynamo_items import sandbox_key, sandbox_of
from sandyard.broker.stores.dynamo_table import PoolTable
from sandyard.kit.dynamo.items import Table
from sandyard.kit.dynamo.values import Item
from sandyard.kit.paging import InvalidCursorError, Page, decode_cursor, encode_cursor

_MOST_QUERIES = 10
"""After this many queries a page is returned, however few rows matched."""


class DynamoPages:
    """The listings of a pool's store."""

    _pool: PoolTable
    _table: Table

    async def page(self, wanted: SandboxFilter, *, limit: int, cursor: str | None) -> Page[Sandbox]:
        """Queries the index partition by partition: the track's, or one for each state."""
        if wanted.search and cursor is None:
            item = await self._table.get(sandbox_key(wanted.search))
            if item and wanted.matches(row := sandbox_of(item)):
                return Page([row], None)
        listing = f"sandboxes {wanted}"
        partitions = _partitions(wanted)
        number, start = 0, None
        if cursor is not None:
            number, start = _position(decode_cursor(listing, cursor), len(partitions))
        found: list[Sandbox] = []
        for _ in range(_MOST_QUERIES):
            if number == len(partitions) or len(found) == limit:
                break
            items, start = await self._query(
                partitions[number], wanted, limit=limit - len(found), start=start
            )
            found += await self._matching(items, wanted, partitions[number])
            number += start is None
        if number == len(partitions) or not await self._has_more(
            partitions[number:], wanted, start
        ):
            return Page(_sorted(found, wanted), None)
        return Page(_sorted(found, wanted), encode_cursor(listing, [number, start]))

    async def _matching(
        self, items: Sequence[Item], wanted: SandboxFilter, partition: Item
    ) -> list[Sandbox]:
        """A track's rows are read consistently: its index also shows those it no longer has. Other
        partitions skip rows that the search has found by key."""
        if "track" in partition:
            fresh = await self._table.get_many([sandbox_key(i["sandbox_id"]) for i in items])
            rows = {item["sandbox_id"]: item for item in fresh}
            items = [rows[i["sandbox_id"]] for i in items if i["sandbox_id"] in rows]
            return [row for row in map(sandbox_of, items) if wanted.matches(row)]
        listed = [sandbox_of(item) for item in items]
        return [row for row in listed if not (wanted.search and wanted.is_key_of(row))]

    async def _has_more(
        self, partitions: Sequence[Item], wanted: SandboxFilter, start: Item | None
    ) -> bool:
        """Whether another page has rows; with a filter, one query can't tell, so True."""
        if wanted.name_prefix or wanted.search or wanted.track is not None:
            return True
        for partition in partitions:
            items, _ = await self._query(partition, wanted, limit=1, start=start)
            if items:
                return True
            start = None
        return False

    async def _query(
        self, partition: Item, wanted: SandboxFilter, *, limit: int, start: Item | None
    ) -> tuple[list[Item], Item | None]:
        by_track = "track" in partition
        filters = ["begins_with(#name, :prefix)"] if wanted.name_prefix else []
        if by_track and wanted.status is not None:
            filters.append("#status = :status")
        if not by_track and wanted.search:
            filters.append("begins_with(#name, :search)")
        items, following, _ = await self._table.query(
            index=self._pool.names.track_index if by_track else self._pool.status_index,
            condition="allocated_to_track = :track" if by_track else "#status = :status",
            values={
                "prefix": wanted.name_prefix,
                "search": wanted.search,
                "status": wanted.status,
                **partition,
            },
            where=" AND ".join(filters) or None,
            limit=None if filters else limit,
            start=start,
        )
        if len(items) > limit:
            return items[:limit], _index_position(items[limit - 1], partition)
        return items, following


def _sorted(rows: Sequence[Sandbox], wanted: SandboxFilter) -> list[Sandbox]:
    """Each page on its own: the index is ordered by state and by the beginning of the lease."""

    def key(row: Sandbox) -> tuple[Any, ...]:
        return row.name, row.sandbox_id

    if wanted.sort is None:
        return list(rows)
    if wanted.sort in (Sort.NAME, Sort.NAME_DESCENDING):
        return sorted(rows, key=key, reverse=wanted.sort.is_descending)
    leased = [row for row in rows if row.status is Status.ALLOCATED]
    others = [row for row in rows if row.status is not Status.ALLOCATED]
    leased.sort(key=lambda row: (row.expires_at, row.sandbox_id), reverse=wanted.sort.is_descending)
    return leased + sorted(others, key=key, reverse=wanted.sort.is_descending)


def _partitions(wanted: SandboxFilter) -> list[Item]:
    if wanted.track is not None:
        return [{"track": wanted.track}]
    states = list(Status) if wanted.status is None else [wanted.status]
    by_key = [{"track": wanted.search}] if wanted.search else []
    return [*by_key, *({"status": each} for each in states)]


def _index_position(item: Item, partition: Item) -> Item:
    key = "allocated_to_track" if "track" in partition else "status"
    return {name: item[name] for name in ("PK", "SK", key, "allocated_at")}


def _position(position: list[Any], partitions: int) -> tuple[int, Item | None]:
    match position:
        case [int() as number, dict() | None as start] if 0 <= number < partitions:
            return number, start
        case _:
            raise InvalidCursorError
