"""Notifications on SQLite or PostgreSQL."""

from collections.abc import Sequence
from dataclasses import fields
from datetime import datetime
from typing import Any

import sqlalchemy as sa

from sandyard.kit.ids import resource_id
from sandyard.kit.paging import Page
from sandyard.kit.sql import Database
from sandyard.kit.sql_paging import page_of
from sandyard.platform.notifications.model import Notice, Notification, NotificationType
from sandyard.platform.tables import notifications, users

_notification = notifications.c
_NOTIFICATION = tuple(_notification[field.name] for field in fields(Notification))


def notify(
    connection: sa.Connection, account_ids: Sequence[str], notice: Notice, *, now: datetime
) -> None:
    """Tell the accounts, in the transaction of what they are told of: both happen or neither."""
    rows = [
        {
            "notification_id": resource_id("not"),
            "user_account_id": account_id,
            "title": notice.title,
            "message": notice.message,
            "type": notice.type,
            "is_read": False,
            "related_entity_type": notice.related_entity_type,
            "related_entity_id": notice.related_entity_id,
            "created_at": now,
        }
        for account_id in account_ids
    ]
    if rows:
        connection.execute(notifications.insert(), rows)


class SqlNotificationStore:
    def __init__(self, database: Database) -> None:
        self._database = database

    async def find_notification(self, account_id: str, notification_id: str) -> Notification | None:
        statement = sa.select(*_NOTIFICATION).where(*_one(account_id, notification_id))
        row = await self._database.read(lambda connection: connection.execute(statement).first())
        return None if row is None else _notification_of(row)

    async def page_of_notifications(
        self,
        account_id: str,
        *,
        unread: bool | None,
        type_: NotificationType | None,
        limit: int,
        cursor: str | None,
    ) -> Page[Notification]:
        conditions = list(_of(account_id))
        if unread is not None:
            conditions.append(_notification.is_read.is_(not unread))
        if type_ is not None:
            conditions.append(_notification.type == type_)
        rows, next_cursor = await page_of(
            self._database,
            sa.select(*_NOTIFICATION, _notification.id).where(*conditions),
            (_notification.created_at, _notification.id),
            listing=f"notifications {account_id} {unread} {type_}",
            limit=limit,
            cursor=cursor,
        )
        return Page([_notification_of(row) for row in rows], next_cursor)

    async def mark_read(self, account_id: str, notification_id: str) -> Notification | None:
        statement = (
            notifications.update()
            .where(*_one(account_id, notification_id))
            .values(is_read=True)
            .returning(*_NOTIFICATION)
        )
        row = await self._database.write(lambda connection: connection.execute(statement).first())
        return None if row is None else _notification_of(row)

    async def mark_all_read(self, account_id: str) -> int:
        statement = (
            notifications.update()
            .where(*_of(account_id), sa.not_(_notification.is_read))
            .values(is_read=True)
        )
        return await self._database.write(lambda connection: connection.execute(statement).rowcount)

    async def delete_notification(
        self, account_id: str, notification_id: str, *, now: datetime
    ) -> bool:
        statement = (
            notifications.update().where(*_one(account_id, notification_id)).values(deleted_at=now)
        )
        return await self._database.write(
            lambda connection: connection.execute(statement).rowcount == 1
        )

    async def notify_everyone(self, notice: Notice, *, now: datetime) -> int:
        everyone = sa.select(users.c.account_id).where(users.c.is_active)

        def work(connection: sa.Connection) -> int:
            account_ids = list(connection.scalars(everyone))
            notify(connection, account_ids, notice, now=now)
            return len(account_ids)

        return await self._database.write(work)


def _of(account_id: str) -> tuple[sa.ColumnElement[bool], ...]:
    return (_notification.user_account_id == account_id, _notification.deleted_at.is_(None))


def _one(account_id: str, notification_id: str) -> tuple[sa.ColumnElement[bool], ...]:
    return (*_of(account_id), _notification.notification_id == notification_id)


def _notification_of(row: Any) -> Notification:
    values = {field.name: getattr(row, field.name) for field in fields(Notification)}
    return Notification(**(values | {"type": NotificationType(row.type)}))
