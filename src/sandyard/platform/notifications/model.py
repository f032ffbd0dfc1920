"""Notices, and the notifications that they become."""

from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum


class NotificationType(StrEnum):
    INFO = "info"
    WARNING = "warning"
    ERROR = "error"
    SUCCESS = "success"


@dataclass(frozen=True, slots=True)
class Notice:
    """Something that an account should know."""

    title: str
    message: str
    type: NotificationType = NotificationType.INFO
    related_entity_type: str | None = None
    related_entity_id: str | None = None


@dataclass(frozen=True, slots=True)
class Notification:
    notification_id: str
    user_account_id: str
    title: str
    message: str
    type: NotificationType
    is_read: bool
    related_entity_type: str | None
    related_entity_id: str | None
    created_at: datetime
