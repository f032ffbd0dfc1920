"""Notices, and the notifications that they become, decided without any I/O."""

from dataclasses import asdict, dataclass, replace
from datetime import datetime
from enum import StrEnum
from typing import ClassVar

from sandyard.kit.changes.transitions import Cause, Transition, changed, created


class NotificationType(StrEnum):
    INFO = "info"
    WARNING = "warning"
    ERROR = "error"
    SUCCESS = "success"


@dataclass(frozen=True, slots=True)
class NotificationFilter:
    unread: bool | None = None
    type: NotificationType | None = None


@dataclass(frozen=True, slots=True)
class Notice:
    title: str
    message: str
    type: NotificationType = NotificationType.INFO
    related_entity_type: str | None = None
    related_entity_id: str | None = None


@dataclass(frozen=True, slots=True)
class Notification:
    SUBJECT: ClassVar[str] = "notification_id"
    OWNER: ClassVar[str | None] = "user_account_id"

    notification_id: str
    user_account_id: str
    title: str
    message: str
    type: NotificationType
    is_read: bool
    related_entity_type: str | None
    related_entity_id: str | None
    created_at: datetime
    deleted_at: datetime | None = None
    sequence: int = 0


def create_notification(
    notice: Notice, *, notification_id: str, account_id: str, cause: Cause
) -> Transition[Notification]:
    """To be applied together with the change that the notice is about."""
    notification = Notification(
        notification_id=notification_id,
        user_account_id=account_id,
        is_read=False,
        created_at=cause.at,
        **asdict(notice),
    )
    return created(notification, "notification.created", cause)


def mark_read(notification: Notification, cause: Cause) -> Transition[Notification] | None:
    if notification.is_read:
        return None
    return changed(notification, replace(notification, is_read=True), "notification.read", cause)


def delete_notification(notification: Notification, cause: Cause) -> Transition[Notification]:
    deleted = replace(notification, deleted_at=cause.at)
    return changed(notification, deleted, "notification.deleted", cause)
