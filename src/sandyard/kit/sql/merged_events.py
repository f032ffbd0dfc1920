"""The events of several parts in one listing."""

import heapq
from collections.abc import Sequence
from typing import Any

from sandyard.kit.changes.events import EventQuery, LoggedEvent
from sandyard.kit.paging import InvalidCursorError, Page, decode_cursor, encode_cursor
from sandyard.kit.sql.events import SqlEventLog


class MergedEvents:
    """Newest first across all logs; each log in its own order. A cursor holds the position in each
    log, so no event is repeated or skipped."""

    def __init__(self, *logs: SqlEventLog) -> None:
        self._logs = list(logs)

    def add(self, log: SqlEventLog) -> None:
        """Add the log of a part that is built later."""
        self._logs.append(log)

    async def page(self, query: EventQuery, *, limit: int, cursor: str | None) -> Page[LoggedEvent]:
        listing = f"events {[log.part for log in self._logs]} {query}"
        positions = [None] * len(self._logs) if cursor is None else self._positions(listing, cursor)
        found = [
            [
                (index, key, event)
                for key, event in await log.newest(query, limit + 1, before=position)
            ]
            for index, (log, position) in enumerate(zip(self._logs, positions, strict=True))
        ]
        merged = list(heapq.merge(*found, key=lambda each: each[2].event_id, reverse=True))
        for index, key, _ in merged[:limit]:
            positions[index] = key
        next_cursor = encode_cursor(listing, positions) if len(merged) > limit else None
        return Page([event for _, _, event in merged[:limit]], next_cursor)

    def _positions(self, listing: str, cursor: str) -> list[Any]:
        positions: Sequence[Any] = decode_cursor(listing, cursor)
        if len(positions) != len(self._logs):
            raise InvalidCursorError
        return list(positions)
