"""Calls about notifications."""

from datetime import datetime
from typing import Annotated

from fastapi import APIRouter, Path, Query

from sandyard.kit.http.schemas import Documented, PageAnswer, Paging, eg
from sandyard.platform.access.guard import AccessGuard
from sandyard.platform.access.routes import Caller, account_routes, admin_routes
from sandyard.platform.entities.model import Listing
from sandyard.platform.http.fields import Answer, Name, Prose, RequestBody
from sandyard.platform.notifications.model import Notice, NotificationFilter, NotificationType
from sandyard.platform.notifications.service import Notifications


class NotificationAnswer(Answer):
    notification_id: str = eg("not-3f6h9k2m5p8r")
    title: str = eg("Maintenance on Sunday")
    message: str = eg("Sandboxes stop at 02:00 UTC and can be started again at 03:00.")
    type: NotificationType = eg("info")
    is_read: bool = eg(False)
    related_entity_type: str | None
    related_entity_id: str | None
    created_at: datetime = eg("2026-10-30T09:00:00Z")


class NotificationPage(PageAnswer):
    notifications: list[NotificationAnswer]
    next_cursor: str | None


class ReadAllAnswer(Documented):
    read: int = eg(3, description="How many were unread")


class BroadcastBody(RequestBody):
    title: Name = eg("Maintenance on Sunday")
    message: Prose = eg("Sandboxes stop at 02:00 UTC and can be started again at 03:00.")
    type: NotificationType = NotificationType.INFO

    def notice(self) -> Notice:
        return Notice(self.title, self.message, self.type)


class BroadcastAnswer(Documented):
    sent: int = eg(42, description="How many accounts it was sent to")


_NotificationId = Annotated[str, Path(description="The id, from the listing")]


def create_notifications_router(notifications: Notifications, guard: AccessGuard) -> APIRouter:
    routes = account_routes(guard, "/notifications", tag="notifications")

    @routes.get("", "List your notifications")
    async def list_notifications(
        caller: Caller,
        paging: Paging,
        unread: Annotated[
            bool | None, Query(description="Only unread, or only read notifications")
        ] = None,
        type_: Annotated[
            NotificationType | None, Query(alias="type", description="The type of the notification")
        ] = None,
    ) -> NotificationPage:
        """Newest first."""
        listing = Listing(NotificationFilter(unread, type_), "-created_at", **paging)
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


def create_broadcast_router(notifications: Notifications, guard: AccessGuard) -> APIRouter:
    routes = admin_routes(guard, "/admin/notifications", tag="admins")

    @routes.make("", "Notify every user", status_code=201, finds_made=False)
    async def broadcast_notification(body: BroadcastBody, admin: Caller) -> BroadcastAnswer:
        """Sends a notification to each active account."""
        return BroadcastAnswer(sent=await notifications.broadcast(admin, body.notice()))

    return routes.router
