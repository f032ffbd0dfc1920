"""Calls about notifications."""

from datetime import datetime
from typing import Annotated, Any, Self

from fastapi import APIRouter, Body, Depends, Query
from pydantic import BaseModel, Field

from sandyard.kit.http import errors
from sandyard.kit.paging import DEFAULT_LIMIT
from sandyard.platform.access import OPENED_BY_ACCOUNTS, AccessGuard
from sandyard.platform.fields import Cursor, Limit, Name, Prose, RequestBody
from sandyard.platform.notifications.model import Notice, Notification, NotificationType
from sandyard.platform.notifications.service import Notifications
from sandyard.platform.principal import Principal


class NotificationAnswer(BaseModel):
    notification_id: str
    title: str
    message: str
    type: NotificationType
    is_read: bool
    related_entity_type: str | None
    related_entity_id: str | None
    created_at: datetime

    @classmethod
    def of(cls, notification: Notification) -> Self:
        return cls.model_validate(notification, from_attributes=True)


class NotificationPage(BaseModel):
    notifications: list[NotificationAnswer]
    next_cursor: str | None


class ReadAllAnswer(BaseModel):
    read: int = Field(description="How many were unread")


class BroadcastBody(RequestBody):
    title: Name
    message: Prose
    type: NotificationType = NotificationType.INFO


class BroadcastAnswer(BaseModel):
    sent: int = Field(description="How many accounts were told")


def create_notifications_router(
    notifications: Notifications, guard: AccessGuard, *, prefix: str
) -> APIRouter:
    router = APIRouter(prefix=f"{prefix}/notifications", tags=["notifications"])
    Caller = Annotated[Principal, Depends(guard.account)]  # noqa: N806 - a type

    @router.get(
        "",
        summary="List your notifications",
        response_model=NotificationPage,
        responses=errors(400, 401, 503),
        openapi_extra=OPENED_BY_ACCOUNTS,
    )
    async def list_notifications(
        caller: Caller,
        unread: bool | None = None,
        type_: Annotated[NotificationType | None, Query(alias="type")] = None,
        limit: Limit = DEFAULT_LIMIT,
        cursor: Cursor = None,
    ) -> Any:
        """The newest first."""
        page = await notifications.list(
            caller.account_id, unread=unread, type_=type_, limit=limit, cursor=cursor
        )
        shown = [NotificationAnswer.of(each) for each in page.items]
        return NotificationPage(notifications=shown, next_cursor=page.next_cursor)

    @router.post(
        "/read-all",
        summary="Mark all notifications read",
        response_model=ReadAllAnswer,
        responses=errors(401, 503),
        openapi_extra=OPENED_BY_ACCOUNTS,
    )
    async def read_all(caller: Caller) -> Any:
        """All that there are now."""
        return ReadAllAnswer(read=await notifications.read_all(caller.account_id))

    @router.get(
        "/{notification_id}",
        summary="Look at a notification",
        response_model=NotificationAnswer,
        responses=errors(401, 404, 503),
        openapi_extra=OPENED_BY_ACCOUNTS,
    )
    async def get_notification(notification_id: str, caller: Caller) -> Any:
        """Looking does not mark it read."""
        return NotificationAnswer.of(await notifications.get(caller.account_id, notification_id))

    @router.post(
        "/{notification_id}/read",
        summary="Mark a notification read",
        response_model=NotificationAnswer,
        responses=errors(401, 404, 503),
        openapi_extra=OPENED_BY_ACCOUNTS,
    )
    async def read_notification(notification_id: str, caller: Caller) -> Any:
        """Repeating it changes nothing."""
        return NotificationAnswer.of(await notifications.read(caller.account_id, notification_id))

    @router.delete(
        "/{notification_id}",
        summary="Delete a notification",
        status_code=204,
        responses=errors(401, 404, 503),
        openapi_extra=OPENED_BY_ACCOUNTS,
    )
    async def delete_notification(notification_id: str, caller: Caller) -> None:
        """Read or not."""
        await notifications.delete(caller.account_id, notification_id)

    return router


def create_broadcast_router(
    notifications: Notifications, guard: AccessGuard, *, prefix: str
) -> APIRouter:
    router = APIRouter(
        prefix=f"{prefix}/admin/notifications",
        tags=["admins"],
        dependencies=[Depends(guard.admin)],
    )

    @router.post(
        "",
        summary="Tell every user something",
        status_code=201,
        response_model=BroadcastAnswer,
        responses=errors(400, 401, 403, 503),
        openapi_extra=OPENED_BY_ACCOUNTS,
    )
    async def broadcast(body: Annotated[BroadcastBody, Body()]) -> Any:
        """A notification for each active account."""
        notice = Notice(body.title, body.message, body.type)
        return BroadcastAnswer(sent=await notifications.broadcast(notice))

    return router
