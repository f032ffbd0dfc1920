"""The ports of exports and removals. Every method of a store raises UnavailableError if its
engine is unavailable."""

from collections.abc import AsyncIterator, Callable, Collection, Mapping, Sequence
from typing import Any, Protocol

from sandyard.kit.changes.transitions import Entity, Transition
from sandyard.platform.access.principal import Principal

Records = AsyncIterator[Sequence[Mapping[str, Any]]]
Section = tuple[str, Callable[[str], Records]]
"""The name of one kind of entity, and all of an account's as JSON values, in batches."""


class AccountDataStore(Protocol):
    def sections(self) -> Sequence[Section]:
        """Every kind of entity that the Platform stores for an account, without secrets."""

    async def uncleared(self, *, limit: int) -> Sequence[str]:
        """Deleted accounts that may still have data."""

    async def sandboxes_left(self, account_id: str) -> Sequence[str]:
        """Sandboxes of the account that are not recycled."""

    async def entities_left(self, account_id: str, *, limit: int) -> Sequence[Entity]:
        """Some of its remaining keys, templates, variables, notifications and projects."""

    async def clear(self, account_ids: Collection[str]) -> None:
        """Mark these as completely removed."""

    async def apply(self, *transitions: Transition[Any]) -> bool: ...


class Recycling(Protocol):
    async def recycle(self, sandbox_id: str, *, by: Principal) -> Any:
        """End it permanently, with its files."""
