"""The ports of exports and removals. Every method of a store raises UnavailableError if its
engine is unavailable."""

from collections.abc import AsyncIterator, Callable, Collection, Mapping, Sequence
from typing import Any, Protocol

from sandyard.kit.transitions import Entity, Transition
from sandyard.platform.principal import Principal

Records = AsyncIterator[Sequence[Mapping[str, Any]]]
Section = tuple[str, Callable[[str], Records]]
"""What one kind of an account's things is called, and all of them in JSON values, in batches."""


class AccountDataStore(Protocol):
    def sections(self) -> Sequence[Section]:
        """Every kind of thing that the Platform keeps for an account. No secret is among them."""
        ...

    async def uncleared(self, *, limit: int) -> Sequence[str]:
        """Deleted accounts of which something may be left."""
        ...

    async def sandboxes_left(self, account_id: str) -> Sequence[str]:
        """Sandboxes of the account that are not recycled."""
        ...

    async def entities_left(self, account_id: str, *, limit: int) -> Sequence[Entity]:
        """Some of its keys, templates, variables, notifications and projects that are there."""
        ...

    async def clear(self, account_ids: Collection[str]) -> None:
        """Nothing is left of these."""
        ...

    async def apply(self, *transitions: Transition[Any]) -> bool: ...


class Recycling(Protocol):
    async def recycle(self, sandbox_id: str, *, by: Principal) -> Any:
        """End it for good, with its files."""
        ...
