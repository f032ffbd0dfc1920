"""All that happened to one track's sandboxes and tickets, also after their deletion."""

from collections.abc import AsyncIterator

from sandyard.broker.pool.ports import PoolStore, SandboxFilter, pages_of
from sandyard.kit.changes.event_kinds import matches
from sandyard.kit.changes.events import EventQuery, LoggedEvent, actor
from sandyard.kit.ids import first_event_id
from sandyard.kit.paging import Page, all_pages, page_up_to, position_in

_PAGE = 100


class TrackEvents:
    """A listing of events. Its subjects are those on which the track acted, those that it has, and
    those that replaced one of them; of each, the events since it became the track's. They are few:
    all of them are read for each page."""

    def __init__(self, store: PoolStore, track_id: str) -> None:
        self._store = store
        self._track_id = track_id
        self._actor = actor("track", track_id)

    async def page(self, query: EventQuery, *, limit: int, cursor: str | None) -> Page[LoggedEvent]:
        listing = f"track {self._track_id} {query}"
        last = position_in(listing, cursor, str)
        found = [each for each in await self._all() if _matches(query, each)]
        found.sort(key=lambda each: each.event_id, reverse=True)
        rest = [each for each in found if last is None or each.event_id < last[0]]
        return page_up_to(limit, rest, listing, lambda logged: [logged.event_id])

    async def _all(self) -> list[LoggedEvent]:
        found: list[LoggedEvent] = []
        subjects = {
            each.event.subject: None async for each in self._read(EventQuery(actor=self._actor))
        }
        async for rows in pages_of(self._store, SandboxFilter(track=self._track_id)):
            subjects |= dict.fromkeys(row.sandbox_id for row in rows)
        left = list(subjects)
        while left:
            history = [each async for each in self._read(EventQuery(subject=left.pop()))]
            own = max((at for at, each in enumerate(history) if self._is_own(each)), default=-1)
            found += history[: own + 1]
            replacing = [each.event.data.get("replaced_by") for each in history[: own + 1]]
            new = [each for each in replacing if each is not None and each not in subjects]
            subjects |= dict.fromkeys(new)
            left += new
        return found

    def _is_own(self, logged: LoggedEvent) -> bool:
        event = logged.event
        of_track = event.data.get("allocated_to_track") == self._track_id
        return of_track or event.actor == self._actor

    async def _read(self, query: EventQuery) -> AsyncIterator[LoggedEvent]:
        async for found in all_pages(self._store.events.page, query, limit=_PAGE):
            for each in found:
                yield each


def _matches(query: EventQuery, logged: LoggedEvent) -> bool:
    event, written = logged.event, logged.event_id
    return (
        query.subject in (None, event.subject)
        and (query.kind is None or matches(query.kind, event.kind))
        and query.actor in (None, event.actor)
        and (query.from_ms is None or written >= first_event_id(query.from_ms))
        and (query.to_ms is None or written < first_event_id(query.to_ms))
    )
