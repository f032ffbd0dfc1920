"""The port to the storage of clients and their limits."""

from collections.abc import Mapping, Sequence
from typing import Protocol

from sandyard.broker.clients.model import Client, Slot


class ClientStore(Protocol):
    """Clients, the last uses of their tokens, and their lease counts. Returned results are durable;
    every method raises UnavailableError if the engine is unavailable. Clients are changed by
    `PoolStore.apply_together`."""

    async def find_client(self, name: str) -> Client | None:
        """As last committed."""

    async def clients(self) -> Sequence[Client]:
        """All clients, as last committed, ordered by name. There are few."""

    async def note_use(self, token_id: str, *, at: int) -> None:
        """Record a token's last use, without an event."""

    async def last_uses(self, token_ids: Sequence[str]) -> Mapping[str, int]: ...

    async def take_slot(
        self,
        client: str,
        lease_key: tuple[str, str],
        *,
        most: int,
        per_hour: int | None,
        now_ms: int,
    ) -> Slot:
        """Count a lease of this track and key towards the client's limit and its budget of this
        hour, only once if repeated; refused if `most` others are counted, or `per_hour` were in
        this hour. One write, whatever their number."""

    async def use_slot(self, client: str, lease_key: tuple[str, str]) -> bool:
        """The lease was made: what it cost of the budget stays spent. False if there is no such
        slot."""

    async def free_slot(
        self,
        client: str,
        lease_key: tuple[str, str],
        *,
        taken_at_ms: int | None = None,
        if_used: bool = False,
    ) -> None:
        """Stop counting it; if no lease was made with it, the hour's budget has it back. No effect
        if it was not counted, was last requested at another time, or is not used `if_used`."""

    async def slots(
        self, *, taken_before_ms: int, limit: int, after: tuple[str, str, str] | None
    ) -> Sequence[tuple[str, str, str]]:
        """Client, track and key of slots last requested before this time, in a fixed order."""
