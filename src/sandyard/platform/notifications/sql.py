"""Notifications on SQLite or PostgreSQL."""

from collections.abc import Sequence

import sqlalchemy as sa

from sandyard.kit.sql.entities import find_entities
from sandyard.kit.sql.transitions import EntityTable
from sandyard.platform.entities.sql import SqlListing, SqlOwnedStore
from sandyard.platform.notifications.model import Notification
from sandyard.platform.schema.tables import notifications, users

NOTIFICATIONS = EntityTable(Notification, notifications)
_notification = notifications.c


class SqlNotificationStore(SqlOwnedStore[Notification]):
    cursor_name = "notifications"
    listing = SqlListing(
        NOTIFICATIONS, special={"unread": lambda unread: _notification.is_read.is_(not unread)}
    )

    async def find_unread(self, account_id: str, *, limit: int) -> Sequence[Notification]:
        wanted = (*self.visible_to(account_id), sa.not_(_notification.is_read))
        return await find_entities(self._database, NOTIFICATIONS, *wanted, limit=limit)

    async def active_accounts(self) -> Sequence[str]:
        statement = sa.select(users.c.account_id).where(users.c.is_active)
        return await self._database.read(lambda connection: connection.scalars(statement).all())
