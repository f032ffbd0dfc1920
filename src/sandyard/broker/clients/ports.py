"""The port to the storage of clients and their limits."""

from collections.abc import Mapping, Sequence
from typing import Protocol

from sandyard.broker.clients.model import Client


class ClientStore(Protocol):
    """Clients, the last uses of their tokens, and their lease counts. Returned results are durable;
    every method raises UnavailableError if the engine is unavailable. Clients are changed by
    `PoolStore.apply_together`."""

    async def find_client(self, name: str) -> Client | None:
        """As last committed."""
        ...

    async def clients(self) -> Sequence[Client]:
        """All clients, as last committed, ordered by name. There are few."""
        ...

    async def note_use(self, token_id: str, *, at: int) -> None:
        """Record a token's last use, without an event."""
        ...

    async def last_uses(self, token_ids: Sequence[str]) -> Mapping[str, int]: ...

    async def take_slot(
        self, client: str, lease_key: tuple[str, str], *, most: int, now_ms: int
    ) -> bool:
        """Count a lease of this track and key towards the client's limit, only once if repeated;
        False if `most` others are counted. One write, whatever their number."""
        ...

    async def free_slot(
        self, client: str, lease_key: tuple[str, str], *, taken_at_ms: int | None = None
    ) -> None:
        """Stop counting it; no effect if it was not counted, or was last requested at another
        time."""
        ...

    async def slots(
        self, *, taken_before_ms: int, limit: int, after: tuple[str, str, str] | None
    ) -> Sequence[tuple[str, str, str]]:
        """Client, track and key of slots last requested before this time, in a fixed order."""
        ...
