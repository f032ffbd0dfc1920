"""Tells a caller that requests a name which no sandbox has from one that has to wait."""

from sandyard.broker.pool.errors import NoSandboxesAvailableError
from sandyard.broker.pool.ports import PoolStore, SandboxFilter
from sandyard.kit.clock import Clock

_SEEN_SEC = 60
_MOST = 1000


class KnownNames:
    """Prefixes of names that sandboxes of the pool have, in whatever state. Each is looked up once
    a minute."""

    def __init__(self, store: PoolStore, *, clock: Clock) -> None:
        self._store = store
        self._clock = clock
        self._seen_at: dict[str, float] = {}

    async def require(self, prefix: str, *, retry_after: int) -> None:
        """Raise NoSandboxesAvailableError that says so if no name has this prefix."""
        if (message := await self.missing(prefix)) is not None:
            details = {"name_prefix": prefix}
            raise NoSandboxesAvailableError(message, retry_after=retry_after, details=details)

    async def missing(self, prefix: str) -> str | None:
        """Says that no name has this prefix; None if one has."""
        now = self._clock.now()
        if not prefix or self._seen_at.get(prefix, 0) + _SEEN_SEC > now:
            return None
        page = await self._store.page(SandboxFilter(name_prefix=prefix), limit=1, cursor=None)
        if not page.items and page.next_cursor is None:
            return f"No sandbox of the pool has a name that begins with {prefix}."
        if len(self._seen_at) >= _MOST:
            self._seen_at.clear()
        self._seen_at[prefix] = now
        return None
