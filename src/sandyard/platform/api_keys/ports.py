"""The store of API keys. Every method raises UnavailableError if it is unavailable."""

from typing import Protocol

from sandyard.kit.paging import Page
from sandyard.platform.api_keys.model import AccountKey, KeyFilter
from sandyard.platform.changes.apply import TransitionStore
from sandyard.platform.listings.model import Listing


class KeyStore(TransitionStore, Protocol):
    """Finders return only keys of the given account, and no revoked ones. `apply`
    takes effect with the next request, and raises KeyNameTakenError."""

    async def find_key(self, account_id: str, key_id: str) -> AccountKey | None: ...

    async def page_of_keys(
        self, account_id: str, listing: Listing[KeyFilter]
    ) -> Page[AccountKey]: ...
