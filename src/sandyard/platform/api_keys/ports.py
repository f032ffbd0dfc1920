"""The store of API keys. Every method raises UnavailableError if it is unavailable."""

from collections.abc import Sequence
from typing import Any, Protocol

from sandyard.kit.changes.events import Event
from sandyard.kit.changes.transitions import Transition
from sandyard.kit.paging import Page
from sandyard.platform.api_keys.model import AccountKey, KeyFilter
from sandyard.platform.listings.model import Listing


class KeyStore(Protocol):
    """Finders return only keys of the given account, and no revoked ones."""

    async def find_key(self, account_id: str, key_id: str) -> AccountKey | None: ...

    async def page_of_keys(
        self, account_id: str, listing: Listing[KeyFilter]
    ) -> Page[AccountKey]: ...

    async def apply(
        self, *transitions: Transition[Any], extra_events: Sequence[Event] = ()
    ) -> bool:
        """Compare and set; takes effect with the next request. KeyNameTakenError."""
        ...
