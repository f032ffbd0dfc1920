"""The use cases of notifications. Each reads the clock once."""

from sandyard.kit.changes.transitions import Cause, Transition
from sandyard.kit.clock import Clock
from sandyard.kit.concurrency.keyed_locks import KeyedLocks
from sandyard.kit.ids import is_resource_id, resource_id
from sandyard.kit.paging import Page
from sandyard.platform.access.principal import Principal
from sandyard.platform.changes.apply import apply_all, change
from sandyard.platform.listings.model import Listing
from sandyard.platform.notifications.errors import NotificationNotFoundError
from sandyard.platform.notifications.model import (
    Notice,
    Notification,
    NotificationFilter,
    create_notification,
    delete_notification,
    mark_read,
)
from sandyard.platform.notifications.ports import NotificationStore

_BATCH = 500


class Notifications:
    """Every use case but the broadcast is limited to the given account's notifications."""

    def __init__(self, store: NotificationStore, *, clock: Clock) -> None:
        self._store = store
        self._clock = clock
        self._locks = KeyedLocks()

    async def list(
        self, account_id: str, listing: Listing[NotificationFilter]
    ) -> Page[Notification]:
        return await self._store.page_of_notifications(account_id, listing)

    async def get(self, account_id: str, notification_id: str) -> Notification:
        known = is_resource_id("not", notification_id)
        found = await self._store.find_notification(account_id, notification_id) if known else None
        if found is None:
            raise NotificationNotFoundError
        return found

    async def read(self, principal: Principal, notification_id: str) -> Notification:
        cause = Cause.by(principal.actor, self._clock)
        return await change(
            self._store,
            lambda: self.get(principal.account_id, notification_id),
            lambda notification: mark_read(notification, cause),
            lock=self._locks.of(notification_id),
        )

    async def read_all(self, principal: Principal) -> int:
        """Mark all as read; returns how many were unread. Done in batches, each all or nothing."""
        async with self._locks.of(principal.account_id):
            count = 0
            while (read := await self._read_batch(principal)) == _BATCH:
                count += read
        return count + read

    async def _read_batch(self, principal: Principal) -> int:
        cause = Cause.by(principal.actor, self._clock)

        async def decide() -> list[Transition[Notification]]:
            unread = await self._store.find_unread(principal.account_id, limit=_BATCH)
            return [each for each in (mark_read(one, cause) for one in unread) if each]

        return len(await apply_all(self._store, decide))

    async def delete(self, principal: Principal, notification_id: str) -> None:
        cause = Cause.by(principal.actor, self._clock)
        await change(
            self._store,
            lambda: self.get(principal.account_id, notification_id),
            lambda notification: delete_notification(notification, cause),
            lock=self._locks.of(notification_id),
        )

    async def broadcast(self, principal: Principal, notice: Notice) -> int:
        """Notify every active account; returns their number. Done in batches, each all or nothing:
        if one fails, the accounts before it have their notifications."""
        accounts = await self._store.active_accounts()
        for first in range(0, len(accounts), _BATCH):
            cause = Cause.by(principal.actor, self._clock)
            made = [
                create_notification(
                    notice, notification_id=resource_id("not"), account_id=account_id, cause=cause
                )
                for account_id in accounts[first : first + _BATCH]
            ]
            await self._store.apply(*made)
        return len(accounts)
