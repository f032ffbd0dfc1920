"""The provider that the pool belongs to: remembered once, and asked for before it is called."""

import asyncio
from collections.abc import Awaitable, Callable, Collection
from typing import TypeVar

from sandyard.broker.model import Sandbox
from sandyard.broker.ports import PoolStore
from sandyard.broker.provider_model import (
    require_change,
    require_first_provider,
    require_same_provider,
)

T = TypeVar("T")


class PoolProvider:
    """`configured` is the name of the provider that this process would call, and `simulated` the
    ids of the sandboxes that the built-in one begins with."""

    def __init__(
        self, store: PoolStore, *, configured: str, simulated: Collection[str] = ()
    ) -> None:
        self._store = store
        self.configured = configured
        self._simulated = simulated

    async def require(self) -> None:
        """Return if the pool belongs to the configured provider, or now does for the first time;
        else raise ProviderMismatchError."""
        remembered = await self._store.find_provider()
        if remembered is None:
            has_rows = await self._has_rows()
            require_first_provider(
                self.configured,
                has_rows=has_rows,
                has_simulated=has_rows and await self._has_simulated(),
            )
            if await self._store.set_provider(self.configured, before=None):
                return
            remembered = await self._store.find_provider() or self.configured
        require_same_provider(remembered, self.configured)

    async def before_change(self) -> str | None:
        """The provider that the pool has, if it may get the configured one;
        ProviderChangeRefusedError while simulated and real sandboxes would be mixed."""
        remembered = await self._store.find_provider()
        require_change(remembered, self.configured, has_rows=await self._has_rows())
        return remembered

    async def change(self) -> str | None:
        """Give the pool the configured provider, as far as that may be; what it was before."""
        remembered = await self.before_change()
        if not await self._store.set_provider(self.configured, before=remembered):
            return await self.change()  # somebody else was faster
        return remembered

    def before(self, run: Callable[[], Awaitable[T]]) -> Callable[[], Awaitable[T]]:
        """The same work, once it is known that the pool is this provider's."""

        async def checked() -> T:
            await self.require()
            return await run()

        return checked

    async def _has_rows(self) -> bool:
        cursor = None
        while True:
            page = await self._store.page(status=None, limit=1, cursor=cursor)
            if page.items or page.next_cursor is None:
                return bool(page.items)
            cursor = page.next_cursor

    async def _has_simulated(self) -> bool:
        found = await asyncio.gather(*map(self._store.find, self._simulated))
        return any(isinstance(each, Sandbox) for each in found)
