"""Pages of matching items; a next page is only announced if it is not empty."""

import sys
from collections.abc import Awaitable, Callable, Sequence
from typing import TypeVar

from sandyard.kit.paging import Page

T = TypeVar("T")
Fetch = Callable[[int, str | None], Awaitable[Page[T]]]

_PAGE = 100


async def matching(
    fetch: Fetch[T], has: Callable[[T], bool], *, limit: int, cursor: str | None
) -> tuple[Sequence[T], str | None]:
    """At most `limit` items that match `has`, and the next cursor."""
    found: list[T] = []
    while len(found) < limit:
        page = await fetch(min(limit - len(found), _PAGE), cursor)
        found += [each for each in page.items if has(each)]
        cursor = page.next_cursor
        if cursor is None:
            return found, None
    return found, cursor if await _has_more(fetch, has, cursor) else None


async def all_matching(fetch: Fetch[T], has: Callable[[T], bool]) -> Sequence[T]:
    return (await matching(fetch, has, limit=sys.maxsize, cursor=None))[0]


async def _has_more(fetch: Fetch[T], has: Callable[[T], bool], cursor: str | None) -> bool:
    while cursor is not None:
        page = await fetch(_PAGE, cursor)
        if any(has(each) for each in page.items):
            return True
        cursor = page.next_cursor
    return False
