"""The bodies and answers of notifications, as the OpenAPI document describes them."""

from datetime import datetime

from pydantic import BaseModel, Field

from sandyard.kit.http.schemas import PageAnswer, example
from sandyard.platform.http.fields import Answer, Name, Prose, RequestBody
from sandyard.platform.notifications.model import Notice, NotificationType


class NotificationAnswer(Answer):
    model_config = example(
        notification_id="not-3f6h9k2m5p8r",
        title="Maintenance on Sunday",
        message="Sandboxes stop at 02:00 UTC and can be started again at 03:00.",
        type="info",
        is_read=False,
        related_entity_type=None,
        related_entity_id=None,
        created_at="2026-10-30T09:00:00Z",
    )

    notification_id: str
    title: str
    message: str
    type: NotificationType
    is_read: bool
    related_entity_type: str | None
    related_entity_id: str | None
    created_at: datetime


class NotificationPage(PageAnswer):
    notifications: list[NotificationAnswer]
    next_cursor: str | None


class ReadAllAnswer(BaseModel):
    model_config = example(read=3)

    read: int = Field(description="How many were unread")


class BroadcastBody(RequestBody):
    model_config = example(
        title="Maintenance on Sunday",
        message="Sandboxes stop at 02:00 UTC and can be started again at 03:00.",
    )

    title: Name
    message: Prose
    type: NotificationType = NotificationType.INFO

    def notice(self) -> Notice:
        return Notice(self.title, self.message, self.type)


class BroadcastAnswer(BaseModel):
    model_config = example(sent=42)

    sent: int = Field(description="How many accounts it was sent to")
