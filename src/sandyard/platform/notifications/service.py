"""The use cases of notifications. Each reads the clock once."""

from sandyard.kit.clock import Clock, utc_time
from sandyard.kit.ids import is_resource_id
from sandyard.kit.paging import Page
from sandyard.platform.notifications.errors import NotificationNotFoundError
from sandyard.platform.notifications.model import Notice, Notification, NotificationType
from sandyard.platform.notifications.ports import NotificationStore


class Notifications:
    def __init__(self, store: NotificationStore, *, clock: Clock) -> None:
        self._store = store
        self._clock = clock

    async def list(
        self,
        account_id: str,
        *,
        unread: bool | None,
        type_: NotificationType | None,
        limit: int,
        cursor: str | None,
    ) -> Page[Notification]:
        """The newest first."""
        return await self._store.page_of_notifications(
            account_id, unread=unread, type_=type_, limit=limit, cursor=cursor
        )

    async def get(self, account_id: str, notification_id: str) -> Notification:
        known = is_resource_id("not", notification_id)
        return _found(
            await self._store.find_notification(account_id, notification_id) if known else None
        )

    async def read(self, account_id: str, notification_id: str) -> Notification:
        known = is_resource_id("not", notification_id)
        return _found(await self._store.mark_read(account_id, notification_id) if known else None)

    async def read_all(self, account_id: str) -> int:
        """How many were unread."""
        return await self._store.mark_all_read(account_id)

    async def delete(self, account_id: str, notification_id: str) -> None:
        now = utc_time(self._clock.now())
        known = is_resource_id("not", notification_id)
        if not known or not await self._store.delete_notification(
            account_id, notification_id, now=now
        ):
            raise NotificationNotFoundError

    async def broadcast(self, notice: Notice) -> int:
        """Tell every active account; how many they are."""
        return await self._store.notify_everyone(notice, now=utc_time(self._clock.now()))


def _found(notification: Notification | None) -> Notification:
    if notification is None:
        raise NotificationNotFoundError
    return notification
