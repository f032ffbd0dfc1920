"""The use cases of notifications."""

from collections.abc import Sequence
from typing import Protocol

from sandyard.kit.changes.transitions import Transition
from sandyard.kit.errors import NotFoundError
from sandyard.kit.ids import resource_id
from sandyard.platform.access.principal import Principal
from sandyard.platform.entities.apply import OwnedStore, apply_all
from sandyard.platform.entities.service import OwnedEntities
from sandyard.platform.notifications import model
from sandyard.platform.notifications.model import Notice, Notification


class NotificationStore(OwnedStore[Notification], Protocol):
    async def find_unread(self, account_id: str, *, limit: int) -> Sequence[Notification]: ...

    async def active_accounts(self) -> Sequence[str]:
        """The ids of all accounts that a broadcast reaches."""


class NotificationNotFoundError(NotFoundError):
    """You have no notification with this id. List your notifications to find it."""


_BATCH = 500


class Notifications(OwnedEntities[Notification, NotificationStore]):
    id_prefix = "not"
    not_found = NotificationNotFoundError

    async def read(self, principal: Principal, notification_id: str) -> Notification:
        return await self._change(principal, notification_id, model.mark_read)

    async def delete(self, principal: Principal, notification_id: str) -> None:
        await self._change(principal, notification_id, model.delete_notification)

    async def read_all(self, principal: Principal) -> int:
        """Mark all as read; returns how many were unread. Done in batches, each all or nothing."""
        async with self._locks.of(principal.account_id):
            count = 0
            while (read := await self._read_batch(principal)) == _BATCH:
                count += read
        return count + read

    async def _read_batch(self, principal: Principal) -> int:
        cause = self._cause(principal)

        async def decide() -> list[Transition[Notification]]:
            unread = await self._store.find_unread(principal.account_id, limit=_BATCH)
            return [each for each in (model.mark_read(one, cause) for one in unread) if each]

        return len(await apply_all(self._store, decide))

    async def broadcast(self, principal: Principal, notice: Notice) -> int:
        """Notify every active account; returns their number. Done in batches, each all or nothing:
        if one fails, the accounts before it have their notifications."""
        accounts = await self._store.active_accounts()
        for first in range(0, len(accounts), _BATCH):
            cause = self._cause(principal)
            made = [
                model.create_notification(
                    notice, notification_id=resource_id("not"), account_id=account_id, cause=cause
                )
                for account_id in accounts[first : first + _BATCH]
            ]
            await self._store.apply(*made)
        return len(accounts)
