"""The rate limiter of sign-ups, mails and passwords, on the `limits` library."""

import asyncio
from typing import TYPE_CHECKING

from sandyard.kit.errors import RateLimitedError
from sandyard.kit.http.client_address import network_of

if TYPE_CHECKING:  # imported where it is used: it takes a fifth of a second
    from sandyard.kit.rate_limit import RateLimit


class LimitsRateLimiter:
    """Two rates for each action: one for the target account, one for the address."""

    def __init__(self, *, per_account: str, per_address: str, storage_url: str) -> None:
        self._rates = {"account": per_account, "address": per_address}
        self._storage_url = storage_url
        self._limits: dict[tuple[str, str], RateLimit] = {}

    async def hit(self, action: str, *, account: str | None = None, address: str) -> None:
        meant = [
            ("address", network_of(address)),
            *([("account", account)] if account is not None else []),
        ]
        limits = [(await self._limit(action, kind), key) for kind, key in meant]
        # Check both first, so that a refusal by one does not count for the other.
        waits = [await limit.peek(key) for limit, key in limits]
        if not any(waits):
            waits = [await limit.wait_for(key) for limit, key in limits]
        if any(waits):
            raise RateLimitedError(retry_after=max(wait or 0 for wait in waits))

    async def reset(self, action: str, *, account: str) -> None:
        await (await self._limit(action, "account")).reset(account)

    async def _limit(self, action: str, kind: str) -> "RateLimit":
        if (action, kind) not in self._limits:
            made = await asyncio.to_thread(self._make, action, kind)
            self._limits.setdefault((action, kind), made)
        return self._limits[action, kind]

    def _make(self, action: str, kind: str) -> "RateLimit":
        from sandyard.kit.rate_limit import RateLimit

        return RateLimit(self._rates[kind], self._storage_url, name=f"{action} {kind}")
