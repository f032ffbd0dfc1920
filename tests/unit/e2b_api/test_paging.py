"""Pages of matching items."""

import pytest

from sandyard.e2b_api.templates.finder import matching
from sandyard.kit.paging import Page


async def fetch(count: int, after: str | None) -> Page[int]:
    """The numbers below 10."""
    begin = int(after or 0)
    end = min(begin + count, 10)
    return Page(list(range(begin, end)), str(end) if end < 10 else None)


@pytest.mark.parametrize(
    ("limit", "cursor", "found", "following"),
    [
        (2, None, [0, 3], "4"),
        (2, "4", [6, 9], None),
        (3, None, [0, 3, 6], "7"),
        (4, None, [0, 3, 6, 9], None),
        (9, None, [0, 3, 6, 9], None),
    ],
)
async def test_a_page_has_as_many_matches_as_there_are(
    limit: int, cursor: str | None, found: list[int], following: str | None
) -> None:
    page = await matching(fetch, lambda each: each % 3 == 0, limit=limit, cursor=cursor)
    assert page == (found, following)


async def test_a_next_page_is_announced_only_if_it_has_something() -> None:
    assert await matching(fetch, lambda each: each < 2, limit=2, cursor=None) == ([0, 1], None)
