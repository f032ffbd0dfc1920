"""Calls for events: an account's own, and all of them for admins."""

from typing import Annotated

from fastapi import APIRouter, Depends, Path, Query

from sandyard.kit.changes.events import EventListing, EventLog
from sandyard.kit.http.events import EventFilter, EventPage, history_of
from sandyard.kit.http.schemas import Paging
from sandyard.kit.ids import is_resource_id
from sandyard.kit.patterns import pattern
from sandyard.platform.access.guard import AccessGuard
from sandyard.platform.access.routes import Caller, account_routes, admin_routes
from sandyard.platform.sandboxes.errors import SandboxUnknownError

Filter = Annotated[EventFilter, Depends(EventFilter)]
AccountId = Annotated[
    str | None,
    Query(
        pattern=pattern("^[0-9]{12}$", "must be 12 digits"),
        description="Only events of this account",
    ),
]


def create_events_router(log: EventLog, events: EventListing, guard: AccessGuard) -> APIRouter:
    """`events` lists the log's events, and those of other parts about accounts."""
    routes = account_routes(guard, "", tag="events")

    @routes.get("/events", "List your events")
    async def list_events(caller: Caller, only: Filter) -> EventPage:
        """Events of the account's objects, newest first; also of deleted ones."""
        return await only.page(events, account_id=caller.account_id)

    @routes.get("/sandboxes/{sandbox_id}/history", "Get a sandbox's history", 404)
    async def get_sandbox_history(
        sandbox_id: Annotated[str, Path(description="The sandbox's id; it may be recycled")],
        caller: Caller,
        paging: Paging,
    ) -> EventPage:
        """Newest first; also of a recycled sandbox."""
        if not is_resource_id("sbx", sandbox_id):
            raise SandboxUnknownError
        page = await history_of(log, sandbox_id, paging, account_id=caller.account_id)
        if not page.events and paging["cursor"] is None:
            raise SandboxUnknownError
        return page

    return routes.router


def create_all_events_router(events: EventListing, guard: AccessGuard) -> APIRouter:
    routes = admin_routes(guard, "/admin/events", tag="admins")

    @routes.get("", "List the events of all accounts")
    async def list_all_events(only: Filter, account_id: AccountId = None) -> EventPage:
        """Newest first; including those without an account, such as sign-ups."""
        return await only.page(events, account_id=account_id)

    return routes.router
