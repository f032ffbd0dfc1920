"""Logins with an operator's token, rate-limited by network after wrong ones."""

import asyncio
from collections.abc import Callable
from typing import TYPE_CHECKING

from starlette.requests import HTTPConnection

from sandyard.kit.errors import RateLimitedError, UnauthorizedError
from sandyard.kit.http.client_address import ClientAddress, network_of

if TYPE_CHECKING:  # imported on use: it takes a fifth of a second
    from sandyard.kit.rate_limit import RateLimit


class OperatorLogins:
    def __init__(
        self, client_address: ClientAddress, *, failures_per_network: str, storage_url: str
    ) -> None:
        """Replicas that share a storage share the counts."""
        self._client_address = client_address
        self._rate = failures_per_network
        self._storage_url = storage_url
        self._limit: RateLimit | None = None

    async def check(self, request: HTTPConnection, is_valid: Callable[[], bool]) -> None:
        """UnauthorizedError if the token is invalid; RateLimitedError if it is not even checked.
        Counts as a failure until it proves valid, so that concurrent attempts can't exceed the
        limit."""
        limit = await self._counted()
        network = network_of(self._client_address.of(request))
        wait = await limit.wait_for(network)
        if wait is not None:
            raise RateLimitedError(_TOO_MANY, retry_after=wait)
        if not is_valid():
            raise UnauthorizedError(_WRONG)
        await limit.reset(network)

    async def _counted(self) -> "RateLimit":
        if self._limit is None:
            made = await asyncio.to_thread(self._make)
            self._limit = self._limit or made
        return self._limit

    def _make(self) -> "RateLimit":
        from sandyard.kit.rate_limit import RateLimit

        return RateLimit(self._rate, self._storage_url, name="operator logins")


_WRONG = "This is not a valid operator token. The server prints its own at its first start."
_TOO_MANY = "Too many failed logins. Wait `retry_after` seconds."
