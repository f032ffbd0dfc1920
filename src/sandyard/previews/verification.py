"""Checks that the events of Previews match the store."""

from collections.abc import AsyncIterator, Callable, Sequence

from sandyard.kit.changes.events import EventLog
from sandyard.kit.changes.verification import (
    HistoryReport,
    verify_gone,
    verify_history,
)
from sandyard.previews.log_rules import broken_previews
from sandyard.previews.model import Preview
from sandyard.previews.ports import PreviewStore

_PAGE = 500


async def verify(
    store: PreviewStore, log: EventLog, *, progress: Callable[[int], None] = lambda _: None
) -> HistoryReport:
    """Compare every preview with its events, under traffic, and check these by the rules."""
    report = await verify_history(
        _pages(store), store.find, log, progress=progress, rules=broken_previews
    )
    report.add(await verify_gone(store.find, log, rules=broken_previews))
    return report


async def _pages(store: PreviewStore) -> AsyncIterator[Sequence[Preview]]:
    after = ""
    while page := await store.page(after=after, limit=_PAGE):
        yield page
        after = page[-1].project_id
