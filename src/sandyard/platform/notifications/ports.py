"""The store of notifications. Every method raises UnavailableError if it is unavailable."""

from collections.abc import Sequence
from typing import Protocol

from sandyard.platform.entities.apply import OwnedStore
from sandyard.platform.notifications.model import Notification


class NotificationStore(OwnedStore[Notification], Protocol):
    async def find_unread(self, account_id: str, *, limit: int) -> Sequence[Notification]: ...

    async def active_accounts(self) -> Sequence[str]:
        """The ids of all accounts that a broadcast reaches."""
        ...
