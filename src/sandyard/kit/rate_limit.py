"""Rate limits per caller, counted by the `limits` library."""

import math
import time

from limits import parse
from limits.aio.strategies import FixedWindowRateLimiter, MovingWindowRateLimiter
from limits.storage import storage_from_string


class RateLimit:
    """One rate, for any number of keys. Limits with the same name and storage share their
    counts."""

    def __init__(
        self, rate: str, storage_url: str, *, name: str = "", is_sliding: bool = True
    ) -> None:
        """A fixed window costs one number per key, however high the rate."""
        self._rate = parse(rate)
        strategy = MovingWindowRateLimiter if is_sliding else FixedWindowRateLimiter
        self._limiter = strategy(storage_from_string(storage_url))
        self._name = (name,) if name else ()

    async def wait_for(self, key: str, cost: int = 1) -> int | None:
        """Count an attempt; None if allowed, else the seconds to wait."""
        if await self._limiter.hit(self._rate, *self._name, key, cost=cost):
            return None
        return await self._wait(key)

    async def peek(self, key: str) -> int | None:
        """The same without counting."""
        if await self._limiter.test(self._rate, *self._name, key):
            return None
        return await self._wait(key)

    async def _wait(self, key: str) -> int:
        window = await self._limiter.get_window_stats(self._rate, *self._name, key)
        return max(1, math.ceil(window.reset_time - time.time()))

    async def reset(self, key: str) -> None:
        await self._limiter.clear(self._rate, *self._name, key)
