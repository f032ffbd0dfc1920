"""What the API keys need of an engine. Every method raises UnavailableError when it is away."""

from datetime import datetime
from typing import Protocol

from sandyard.kit.paging import Page
from sandyard.platform.api_keys.model import AccountKey, KeyChanges, KeyFilter, KeySort
from sandyard.platform.notifications.model import Notice


class KeyStore(Protocol):
    """Every method sees the keys of the named account alone, and none that was deleted."""

    async def add_key(self, key: AccountKey, *, key_hash: str, notice: Notice) -> None:
        """Keep the key and tell its account, together; KeyNameTakenError."""
        ...

    async def find_key(self, account_id: str, key_id: str) -> AccountKey | None: ...

    async def page_of_keys(
        self,
        account_id: str,
        only: KeyFilter,
        *,
        sort: KeySort,
        limit: int,
        cursor: str | None,
    ) -> Page[AccountKey]: ...

    async def update_key(
        self, account_id: str, key_id: str, changes: KeyChanges, *, now: datetime
    ) -> AccountKey | None:
        """The key as it is then, in force with the next request; KeyNameTakenError."""
        ...

    async def delete_key(self, account_id: str, key_id: str, *, now: datetime) -> bool:
        """Whether there was one. It opens nothing from the next request on."""
        ...
