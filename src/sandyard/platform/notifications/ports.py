"""What the notifications need of an engine. Every method raises UnavailableError when it is away.

What happens to a noun is told in the transaction in which it happens, so each noun's store does
that itself, through the function that its engine's store of notifications has for it.
"""

from datetime import datetime
from typing import Protocol

from sandyard.kit.paging import Page
from sandyard.platform.notifications.model import Notice, Notification, NotificationType


class NotificationStore(Protocol):
    """Every method sees the notifications of the named account alone, and none that was deleted."""

    async def find_notification(
        self, account_id: str, notification_id: str
    ) -> Notification | None: ...

    async def page_of_notifications(
        self,
        account_id: str,
        *,
        unread: bool | None,
        type_: NotificationType | None,
        limit: int,
        cursor: str | None,
    ) -> Page[Notification]:
        """The newest first."""
        ...

    async def mark_read(self, account_id: str, notification_id: str) -> Notification | None: ...

    async def mark_all_read(self, account_id: str) -> int:
        """How many were unread."""
        ...

    async def delete_notification(
        self, account_id: str, notification_id: str, *, now: datetime
    ) -> bool:
        """Whether there was one."""
        ...

    async def notify_everyone(self, notice: Notice, *, now: datetime) -> int:
        """Tell every active account, all or none; how many they are."""
        ...
