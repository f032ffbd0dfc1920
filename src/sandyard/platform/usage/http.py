"""Accounts' calls for their usage."""

from datetime import UTC, datetime
from typing import Annotated, Self

from fastapi import APIRouter, Query
from pydantic import Field

from sandyard.kit.clock import Clock, utc_time
from sandyard.kit.http.schemas import PageAnswer, Paging, example
from sandyard.platform.access.guard import AccessGuard
from sandyard.platform.access.routes import Caller, account_routes
from sandyard.platform.entities.model import Listing
from sandyard.platform.http import fields
from sandyard.platform.usage.model import ServiceType, Usage
from sandyard.platform.usage.ports import UsageQuery, UsageStore


class UsageAnswer(fields.Answer):
    model_config = example(
        usage_id="usg-5t8w1y4b7d0g",
        sandbox_id="sbx-1m4p7s0v3y6b9e2hk",
        project_id="prj-4k8s0m2q6w1c9x7ab",
        service_type="sandbox_runtime",
        start_time="2026-10-30T09:00:00Z",
        end_time="2026-10-30T10:30:00Z",
        seconds=5400,
        milliseconds=5400000,
        hourly_rate="0.060000",
        cost="0.090000",
        currency="USD",
        cpu_hours="1.500000",
        memory_hours="1.500000",
        storage_hours="0.000000",
    )

    usage_id: str
    sandbox_id: str | None = Field(description="Null for the storage of an image")
    project_id: str | None
    service_type: ServiceType
    start_time: datetime
    end_time: datetime | None = Field(description="Null while it is open")
    seconds: int = Field(description="The whole seconds of the milliseconds")
    milliseconds: int = Field(
        description="Up to now, if it is open; a run counts for a second at least"
    )
    hourly_rate: fields.Rate = Field(description="Fixed at the start, not rounded")
    cost: fields.Money = Field(
        description="Milliseconds times rate, rounded half to even to 6 places"
    )
    currency: fields.Currency
    cpu_hours: fields.Quantity = Field(description="vCPU hours, rounded likewise")
    memory_hours: fields.Quantity = Field(description="GB hours of memory, rounded likewise")
    storage_hours: fields.Quantity = Field(description="GB hours of stored files, rounded likewise")

    @classmethod
    def of(cls, usage: Usage, now: datetime, currency: str) -> Self:
        consumed = usage.consumed_until(now)
        return super().of(
            consumed, usage, hourly_rate=usage.rate, cost=consumed.amount, currency=currency
        )


class UsagePage(PageAnswer):
    usage: list[UsageAnswer]
    next_cursor: str | None


def create_usage_router(
    store: UsageStore, guard: AccessGuard, *, clock: Clock, currency: str
) -> APIRouter:
    routes = account_routes(guard, "/usage", tag="usage")

    @routes.get("", "List usage")
    async def list_usage(
        caller: Caller,
        paging: Paging,
        sandbox_id: fields.OfSandbox = None,
        project_id: fields.OfProject = None,
        service_type: Annotated[
            ServiceType | None, Query(description="Running, or storing files")
        ] = None,
        is_open: Annotated[
            bool | None, Query(description="Only open, or only closed usage")
        ] = None,
        start: Annotated[
            fields.Timestamp | None,
            Query(alias="from", description="Only usage that began at or after this time"),
        ] = None,
        end: Annotated[
            fields.Timestamp | None,
            Query(alias="to", description="Only usage that began before this time"),
        ] = None,
    ) -> UsagePage:
        """Latest first. `from` and `to` limit the start; open usage is counted up to now."""
        query = UsageQuery(sandbox_id, project_id, service_type, is_open, _utc(start), _utc(end))
        listing = Listing(query, "-start_time", **paging)
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
