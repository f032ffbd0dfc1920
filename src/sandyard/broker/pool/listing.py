"""Reading the pool in pages."""

from collections.abc import AsyncIterator, Sequence

from sandyard.broker.pool.filter_model import SandboxFilter
from sandyard.broker.pool.model import Sandbox
from sandyard.broker.pool.ports import PoolStore

_PAGE = 100


async def pages_of(
    store: PoolStore, where: SandboxFilter, *, size: int = _PAGE
) -> AsyncIterator[Sequence[Sandbox]]:
    """All pages of a listing; some may be empty."""
    cursor: str | None = None
    while True:
        page = await store.page(where, limit=size, cursor=cursor)
        yield page.items
        cursor = page.next_cursor
        if cursor is None:
            return
