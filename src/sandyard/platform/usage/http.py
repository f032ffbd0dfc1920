"""Accounts' calls for their usage."""

from datetime import UTC, datetime
from typing import Annotated

from fastapi import APIRouter, Query

from sandyard.kit.clock import Clock, utc_time
from sandyard.kit.http.schemas import Cursor, Limit
from sandyard.kit.paging import DEFAULT_LIMIT
from sandyard.platform.access.guard import AccessGuard
from sandyard.platform.access.routes import Caller, account_routes
from sandyard.platform.entities.model import Listing
from sandyard.platform.http.fields import OfProject, OfSandbox, Timestamp
from sandyard.platform.usage.model import ServiceType
from sandyard.platform.usage.ports import UsageQuery, UsageStore
from sandyard.platform.usage.schemas import UsageAnswer, UsagePage


def create_usage_router(
    store: UsageStore, guard: AccessGuard, *, clock: Clock, prefix: str, currency: str
) -> APIRouter:
    routes = account_routes(guard, prefix=f"{prefix}/usage", tag="usage")

    @routes.get("", "List usage")
    async def list_usage(
        caller: Caller,
        sandbox_id: OfSandbox = None,
        project_id: OfProject = None,
        service_type: Annotated[
            ServiceType | None, Query(description="Running, or storing files")
        ] = None,
        is_open: Annotated[
            bool | None, Query(description="Only open, or only closed usage")
        ] = None,
        start: Annotated[
            Timestamp | None,
            Query(alias="from", description="Only usage that began at or after this time"),
        ] = None,
        end: Annotated[
            Timestamp | None,
            Query(alias="to", description="Only usage that began before this time"),
        ] = None,
        limit: Limit = DEFAULT_LIMIT,
        cursor: Cursor = None,
    ) -> UsagePage:
        """Latest first. `from` and `to` limit the start; open usage is counted up to now."""
        query = UsageQuery(sandbox_id, project_id, service_type, is_open, _utc(start), _utc(end))
        listing = Listing(query, "-start_time", limit, cursor)
        page = await store.page(caller.account_id, listing)
        now = utc_time(clock.now())
        return UsagePage.of(page, lambda usage: UsageAnswer.of(usage, now, currency))

    return routes.router


def _utc(moment: datetime | None) -> datetime | None:
    """Times at the limits of the calendar have no UTC equivalent; the limit itself is used."""
    if moment is None:
        return None
    try:
        return moment.astimezone(UTC)
    except OverflowError:
        return moment.replace(tzinfo=UTC)
