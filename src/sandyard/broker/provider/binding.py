"""The provider that the pool is bound to: recorded once, and checked before it is called."""

from collections.abc import Awaitable, Callable
from typing import TypeVar

from sandyard.broker.pool.errors import RowBusyError
from sandyard.broker.pool.ports import PoolStore, SandboxFilter, pages_of
from sandyard.broker.provider.model import (
    ProviderBinding,
    decide_first_provider,
    decide_provider_change,
    require_same_provider,
)
from sandyard.kit.changes.events import actor
from sandyard.kit.changes.transitions import Cause, ConflictRetries, Transition
from sandyard.kit.clock import Clock

T = TypeVar("T")


class PoolProvider:
    """`configured` is the name of the provider that this process calls."""

    def __init__(self, store: PoolStore, *, clock: Clock, configured: str) -> None:
        self._store = store
        self._clock = clock
        self.configured = configured

    async def require(self) -> None:
        """Return if the pool belongs to the configured provider, or bind it if it has none yet;
        otherwise raise ProviderMismatchError."""
        bound = await self._store.find_single(ProviderBinding)
        if bound is None:
            bound = await self._bind_first()
        require_same_provider(bound, self.configured)

    async def _bind_first(self) -> ProviderBinding:
        cause = Cause.by(actor("system"), self._clock)
        first = decide_first_provider(self.configured, cause=cause)
        if await self._store.apply_together(first):
            return first.result
        return await self._store.find_single(ProviderBinding) or first.result

    async def before_change(self) -> str | None:
        """The pool's current provider, if it may change to the configured one. Raises
        ProviderChangeRefusedError if simulated and real sandboxes would be mixed."""
        bound, _ = await self._decide_change()
        return bound.provider if bound else None

    async def change(self) -> str | None:
        """Bind the pool to the configured provider, if allowed; returns the previous one."""
        async for _ in ConflictRetries():
            bound, change = await self._decide_change()
            if change is None or await self._store.apply_together(change):
                return bound.provider if bound else None
        raise RowBusyError

    async def _decide_change(
        self,
    ) -> tuple[ProviderBinding | None, Transition[ProviderBinding] | None]:
        bound = await self._store.find_single(ProviderBinding)
        cause = Cause.by(actor("operator"), self._clock)
        has_rows = await self._has_rows()
        return bound, decide_provider_change(bound, self.configured, has_rows=has_rows, cause=cause)

    def before(self, run: Callable[[], Awaitable[T]]) -> Callable[[], Awaitable[T]]:
        """Wraps `run` with a check that the pool belongs to this provider."""

        async def checked() -> T:
            await self.require()
            return await run()

        return checked

    async def _has_rows(self) -> bool:
        async for rows in pages_of(self._store, SandboxFilter(), size=1):
            if rows:
                return True
        return False
