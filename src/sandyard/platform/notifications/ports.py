"""The store of notifications. Every method raises UnavailableError if it is unavailable."""

from collections.abc import Sequence
from typing import Protocol

from sandyard.kit.paging import Page
from sandyard.platform.changes.apply import TransitionStore
from sandyard.platform.listings.model import Listing
from sandyard.platform.notifications.model import Notification, NotificationFilter


class NotificationStore(TransitionStore, Protocol):
    """Finders return only notifications of the given account, and no deleted ones."""

    async def find_notification(
        self, account_id: str, notification_id: str
    ) -> Notification | None: ...

    async def find_unread(self, account_id: str, *, limit: int) -> Sequence[Notification]: ...

    async def page_of_notifications(
        self, account_id: str, listing: Listing[NotificationFilter]
    ) -> Page[Notification]: ...

    async def active_accounts(self) -> Sequence[str]:
        """The ids of all accounts that a broadcast reaches."""
        ...
