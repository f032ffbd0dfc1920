"""Checks that the events of Previews match the store."""

from collections.abc import AsyncIterator, Callable, Sequence
from typing import Protocol

from sandyard.kit.changes.events import EventLog
from sandyard.kit.changes.verification import (
    HistoryReport,
    verify_gone,
    verify_history,
)
from sandyard.previews.model import Preview

_PAGE = 500


class KnownPreviews(Protocol):
    async def page(self, *, after: str, limit: int) -> Sequence[Preview]:
        """The next ones, ordered by project id."""
        ...

    async def find(self, project_id: str) -> Preview | None: ...


async def verify(
    store: KnownPreviews, log: EventLog, *, progress: Callable[[int], None] = lambda _: None
) -> HistoryReport:
    """Compare every preview with its events, under traffic."""
    report = await verify_history(_pages(store), store.find, log, progress=progress)
    report.add(await verify_gone(store.find, log))
    return report


async def _pages(store: KnownPreviews) -> AsyncIterator[Sequence[Preview]]:
    after = ""
    while page := await store.page(after=after, limit=_PAGE):
        yield page
        after = page[-1].project_id
