"""Notifications on SQLite or PostgreSQL."""

from collections.abc import Sequence
from datetime import datetime

import sqlalchemy as sa

from sandyard.kit.ids import resource_id
from sandyard.platform.notifications.model import Notice
from sandyard.platform.tables import notifications


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
