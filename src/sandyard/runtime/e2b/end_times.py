"""Looks up when sandboxes end, in one listing for many concurrent callers."""

from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from datetime import datetime

from sandyard.kit.concurrency.single_flight import SingleFlight

FEW = 4
"""This many are requested individually at the same time."""
QUESTIONS_PER_PAGE = 10
"""A page of the list takes about as long as this many requests; no more pages are read than pay
off."""


class EndTimes:
    """A few requests are sent individually; further ones share a list that began after they
    arrived.

    A sandbox that is not listed is requested individually: its absence from a list does not prove
    that it is gone.
    """

    def __init__(
        self,
        ask: Callable[[str], Awaitable[datetime]],
        pages: Callable[[], AsyncIterator[Mapping[str, datetime]]],
        *,
        gather_sec: float = 0,
    ) -> None:
        """`gather_sec`: how long a list waits for callers that arrive just after the first."""
        self._ask = ask
        self._pages = pages
        self._asking = 0
        self._wanted: set[str] = set()
        self._lists: SingleFlight[Mapping[str, datetime]] = SingleFlight(gather_sec=gather_sec)

    async def get(self, sandbox_id: str) -> datetime:
        if self._asking >= FEW or self._wanted:
            self._wanted.add(sandbox_id)
            listed = await self._lists.run("all", self._list)
            if sandbox_id in listed:
                return listed[sandbox_id]
        self._asking += 1
        try:
            return await self._ask(sandbox_id)
        finally:
            self._asking -= 1

    async def stop(self) -> None:
        await self._lists.stop()

    async def _list(self) -> Mapping[str, datetime]:
        wanted, self._wanted = self._wanted, set()
        pages_left = 1 + len(wanted) // QUESTIONS_PER_PAGE
        found: dict[str, datetime] = {}
        async for page in self._pages():
            found |= page
            pages_left -= 1
            if not pages_left or wanted <= found.keys():
                break
        return found
