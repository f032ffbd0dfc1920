"""Calls of accounts about what ran, and for how long."""

from datetime import UTC, datetime
from typing import Annotated, Any

from fastapi import APIRouter, Depends, Query
from pydantic import BaseModel, Field

from sandyard.kit.clock import Clock, utc_time
from sandyard.kit.http import errors
from sandyard.kit.paging import DEFAULT_LIMIT
from sandyard.platform.access import OPENED_BY_ACCOUNTS, AccessGuard
from sandyard.platform.fields import Cursor, Limit, Moment, Money
from sandyard.platform.principal import Principal
from sandyard.platform.usage.model import ServiceType, Usage
from sandyard.platform.usage.ports import UsageQuery, UsageStore

OtherId = Annotated[str | None, Query(max_length=25, pattern=r"^[a-z0-9-]+$")]


class UsageAnswer(BaseModel):
    usage_id: str
    sandbox_id: str
    project_id: str | None
    service_type: ServiceType
    start_time: datetime
    end_time: datetime | None = Field(description="Null while it goes on")
    seconds: int = Field(description="Up to now, if it goes on")
    hourly_rate: Money = Field(description="Fixed at the start")
    cost: Money = Field(description="Seconds by the rate, rounded half to even to 6 places")

    @classmethod
    def of(cls, usage: Usage, now: datetime) -> "UsageAnswer":
        return cls(
            usage_id=usage.usage_id,
            sandbox_id=usage.sandbox_id,
            project_id=usage.project_id,
            service_type=usage.service_type,
            start_time=usage.start_time,
            end_time=usage.end_time,
            seconds=usage.seconds_until(now),
            hourly_rate=usage.hourly_rate,
            cost=usage.cost_until(now),
        )


class UsagePage(BaseModel):
    usage: list[UsageAnswer]
    next_cursor: str | None


def create_usage_router(
    store: UsageStore, guard: AccessGuard, *, clock: Clock, prefix: str
) -> APIRouter:
    router = APIRouter(prefix=f"{prefix}/usage", tags=["usage"])
    Caller = Annotated[Principal, Depends(guard.account)]  # noqa: N806 - a type

    @router.get(
        "",
        summary="List usage",
        response_model=UsagePage,
        responses=errors(400, 401, 503),
        openapi_extra=OPENED_BY_ACCOUNTS,
    )
    async def list_usage(
        caller: Caller,
        sandbox_id: OtherId = None,
        project_id: OtherId = None,
        service_type: ServiceType | None = None,
        is_open: bool | None = None,
        start: Annotated[Moment | None, Query(alias="from")] = None,
        end: Annotated[Moment | None, Query(alias="to")] = None,
        limit: Limit = DEFAULT_LIMIT,
        cursor: Cursor = None,
    ) -> Any:
        """The latest first. `from` and `to` bound the start; what goes on is counted up to now."""
        query = UsageQuery(sandbox_id, project_id, service_type, is_open, _utc(start), _utc(end))
        page = await store.page(caller.account_id, query, limit=limit, cursor=cursor)
        now = utc_time(clock.now())
        shown = [UsageAnswer.of(each, now) for each in page.items]
        return UsagePage(usage=shown, next_cursor=page.next_cursor)

    return router


def _utc(moment: datetime | None) -> datetime | None:
    """Moments at the edge of the calendar have no UTC; the edge itself will do."""
    if moment is None:
        return None
    try:
        return moment.astimezone(UTC)
    except OverflowError:
        return moment.replace(tzinfo=UTC)
