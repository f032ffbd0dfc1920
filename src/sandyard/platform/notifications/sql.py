"""Notifications on SQLite or PostgreSQL."""

from collections.abc import Sequence

import sqlalchemy as sa

from sandyard.kit.paging import Page
from sandyard.kit.sql.entities import find_entities, find_entity
from sandyard.kit.sql.transitions import EntityTable, SqlEntityStore
from sandyard.platform.listings.model import Listing
from sandyard.platform.listings.sql import SqlListing
from sandyard.platform.notifications.model import Notification, NotificationFilter
from sandyard.platform.schema.tables import notifications, users

NOTIFICATIONS = EntityTable(Notification, notifications)
_notification = notifications.c
_LISTING = SqlListing(
    NOTIFICATIONS, special={"unread": lambda unread: _notification.is_read.is_(not unread)}
)


class SqlNotificationStore(SqlEntityStore):
    async def find_notification(self, account_id: str, notification_id: str) -> Notification | None:
        this = _notification.notification_id == notification_id
        return await find_entity(self._database, NOTIFICATIONS, *_of(account_id), this)

    async def find_unread(self, account_id: str, *, limit: int) -> Sequence[Notification]:
        unread = sa.not_(_notification.is_read)
        return await find_entities(
            self._database, NOTIFICATIONS, *_of(account_id), unread, limit=limit
        )

    async def page_of_notifications(
        self, account_id: str, listing: Listing[NotificationFilter]
    ) -> Page[Notification]:
        name = f"notifications {account_id}"
        return await _LISTING.page(self._database, listing, *_of(account_id), name=name)

    async def active_accounts(self) -> Sequence[str]:
        statement = sa.select(users.c.account_id).where(users.c.is_active)
        return await self._database.read(lambda connection: connection.scalars(statement).all())


def _of(account_id: str) -> tuple[sa.ColumnElement[bool], ...]:
    return (_notification.user_account_id == account_id, _notification.deleted_at.is_(None))
