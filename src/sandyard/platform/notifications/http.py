"""Calls about notifications."""

from typing import Annotated

from fastapi import APIRouter, Path, Query

from sandyard.kit.http.schemas import Cursor, Limit
from sandyard.kit.paging import DEFAULT_LIMIT
from sandyard.platform.access.guard import AccessGuard
from sandyard.platform.access.routes import Caller, account_routes, admin_routes
from sandyard.platform.entities.model import Listing
from sandyard.platform.notifications.model import NotificationFilter, NotificationType
from sandyard.platform.notifications.schemas import (
    BroadcastAnswer,
    BroadcastBody,
    NotificationAnswer,
    NotificationPage,
    ReadAllAnswer,
)
from sandyard.platform.notifications.service import Notifications

_NotificationId = Annotated[str, Path(description="The id, from the listing")]


def create_notifications_router(
    notifications: Notifications, guard: AccessGuard, *, prefix: str
) -> APIRouter:
    routes = account_routes(guard, prefix=f"{prefix}/notifications", tag="notifications")

    @routes.get("", "List your notifications")
    async def list_notifications(
        caller: Caller,
        unread: Annotated[
            bool | None, Query(description="Only unread, or only read notifications")
        ] = None,
        type_: Annotated[
            NotificationType | None, Query(alias="type", description="The type of the notification")
        ] = None,
        limit: Limit = DEFAULT_LIMIT,
        cursor: Cursor = None,
    ) -> NotificationPage:
        """Newest first."""
        listing = Listing(NotificationFilter(unread, type_), "-created_at", limit, cursor)
        page = await notifications.list(caller.account_id, listing)
        return NotificationPage.of(page, NotificationAnswer.of)

    @routes.post("/read-all", "Mark all notifications as read")
    async def read_all_notifications(caller: Caller) -> ReadAllAnswer:
        """Marks all current notifications as read."""
        return ReadAllAnswer(read=await notifications.read_all(caller))

    @routes.get("/{notification_id}", "Get a notification", 404)
    async def get_notification(
        notification_id: _NotificationId, caller: Caller
    ) -> NotificationAnswer:
        """Does not mark it as read."""
        return NotificationAnswer.of(await notifications.get(caller.account_id, notification_id))

    @routes.post("/{notification_id}/read", "Mark a notification as read", 404)
    async def read_notification(
        notification_id: _NotificationId, caller: Caller
    ) -> NotificationAnswer:
        """Marks it as read. Repeating it changes nothing."""
        return NotificationAnswer.of(await notifications.read(caller, notification_id))

    @routes.delete("/{notification_id}", "Delete a notification", 404, status_code=204)
    async def delete_notification(notification_id: _NotificationId, caller: Caller) -> None:
        """Read or unread."""
        await notifications.delete(caller, notification_id)

    return routes.router


def create_broadcast_router(
    notifications: Notifications, guard: AccessGuard, *, prefix: str
) -> APIRouter:
    routes = admin_routes(guard, prefix=f"{prefix}/admin/notifications", tag="admins")

    @routes.post("", "Notify every user", status_code=201)
    async def broadcast_notification(body: BroadcastBody, admin: Caller) -> BroadcastAnswer:
        """Sends a notification to each active account."""
        return BroadcastAnswer(sent=await notifications.broadcast(admin, body.notice()))

    return routes.router
