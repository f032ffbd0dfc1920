"""Limits the request rate of each account, with the `limits` library."""

import asyncio
from typing import TYPE_CHECKING

from sandyard.kit.errors import RateLimitedError

if TYPE_CHECKING:  # imported where it is used: it takes a fifth of a second
    from sandyard.kit.rate_limit import RateLimit


class RequestRate:
    def __init__(self, rate: str, storage_url: str) -> None:
        self._rate = rate
        self._storage_url = storage_url
        self._limit: RateLimit | None = None

    async def count(self, account_id: str) -> None:
        """Count a request; RateLimitedError if it is over the limit."""
        if self._limit is None:
            made = await asyncio.to_thread(self._make)
            self._limit = self._limit or made
        wait = await self._limit.wait_for(account_id)
        if wait is not None:
            raise RateLimitedError(retry_after=wait)

    def _make(self) -> "RateLimit":
        from sandyard.kit.rate_limit import RateLimit

        return RateLimit(self._rate, self._storage_url, name="requests", is_sliding=False)
