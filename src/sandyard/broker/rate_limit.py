"""How often one track may ask, counted by the `limits` library."""

import math
import time

from limits import parse
from limits.aio.strategies import MovingWindowRateLimiter
from limits.storage import storage_from_string


class TrackRateLimit:
    def __init__(self, rate: str, storage_url: str) -> None:
        self._rate = parse(rate)
        self._limiter = MovingWindowRateLimiter(storage_from_string(storage_url))

    async def wait_for(self, track_id: str) -> int | None:
        if await self._limiter.hit(self._rate, track_id):
            return None
        window = await self._limiter.get_window_stats(self._rate, track_id)
        return max(1, math.ceil(window.reset_time - time.time()))
