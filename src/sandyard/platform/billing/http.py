"""Calls of accounts about their bills, and of admins to make them now."""

import asyncio
import csv
import io
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from datetime import date, datetime
from decimal import Decimal
from typing import Annotated, Any

from fastapi import APIRouter, Depends, Query, Response
from fastapi.responses import StreamingResponse
from pydantic import BaseModel, Field

from sandyard.kit.http import errors
from sandyard.kit.paging import DEFAULT_LIMIT
from sandyard.platform.access import OPENED_BY_ACCOUNTS, AccessGuard
from sandyard.platform.billing.jobs import BillingReport
from sandyard.platform.billing.model import Bill
from sandyard.platform.billing.ports import BillingStore, BillQuery, SumBy
from sandyard.platform.fields import Cursor, Day, Limit, Money
from sandyard.platform.principal import Principal
from sandyard.platform.usage.model import ServiceType

OtherId = Annotated[str | None, Query(max_length=25, pattern=r"^[a-z0-9-]+$")]
_COLUMNS = (
    "billing_date",
    "billing_id",
    "project_id",
    "sandbox_id",
    "usage_id",
    "service_type",
    "usage_seconds",
    "hourly_rate",
    "amount",
)


class BillAnswer(BaseModel):
    billing_id: str
    usage_id: str
    project_id: str | None
    sandbox_id: str | None
    billing_date: date = Field(description="A UTC day")
    service_type: ServiceType
    usage_seconds: int
    hourly_rate: Money
    amount: Money
    description: str | None
    created_at: datetime


class BillPage(BaseModel):
    bills: list[BillAnswer]
    next_cursor: str | None


class SumAnswer(BaseModel):
    key: str = Field(description="The day, project, sandbox or service")
    amount: Money
    usage_seconds: int


class SumsAnswer(BaseModel):
    by: SumBy
    sums: list[SumAnswer]
    total: Money


class BillingRunAnswer(BaseModel):
    storage_counted: int
    usages: int = Field(description="Usages that were not billed to their end")
    bills: int = Field(description="Bills that are new")
    spenders_told: int


def bill_query(
    project_id: OtherId = None,
    sandbox_id: OtherId = None,
    service_type: ServiceType | None = None,
    from_day: Annotated[Day | None, Query(alias="from", description="Included")] = None,
    to_day: Annotated[Day | None, Query(alias="to", description="Included")] = None,
) -> BillQuery:
    return BillQuery(project_id, sandbox_id, service_type, from_day, to_day)


Asked = Annotated[BillQuery, Depends(bill_query)]


def create_billing_router(
    store: BillingStore,
    make_bills: Callable[[], Awaitable[BillingReport]],
    guard: AccessGuard,
    *,
    prefix: str,
) -> APIRouter:
    router = APIRouter(prefix=prefix, tags=["billing"])
    Caller = Annotated[Principal, Depends(guard.account)]  # noqa: N806 - a type

    @router.get(
        "/billing",
        summary="List bills",
        response_model=BillPage,
        responses=errors(400, 401, 503),
        openapi_extra=OPENED_BY_ACCOUNTS,
    )
    async def list_bills(
        caller: Caller, query: Asked, limit: Limit = DEFAULT_LIMIT, cursor: Cursor = None
    ) -> Any:
        """One for each usage and UTC day, the latest day first."""
        page = await store.page(caller.account_id, query, limit=limit, cursor=cursor)
        shown = [BillAnswer.model_validate(each, from_attributes=True) for each in page.items]
        return BillPage(bills=shown, next_cursor=page.next_cursor)

    @router.get(
        "/billing/summary",
        summary="Sum bills up",
        response_model=SumsAnswer,
        responses=errors(400, 401, 503),
        openapi_extra=OPENED_BY_ACCOUNTS,
    )
    async def summary(caller: Caller, query: Asked, by: SumBy = "day") -> Any:
        """By day, project, sandbox or service; the sums are exact."""
        sums = await store.sums(caller.account_id, query, by=by)
        shown = [SumAnswer.model_validate(each, from_attributes=True) for each in sums]
        total = sum((each.amount for each in sums), Decimal(0))
        return SumsAnswer(by=by, sums=shown, total=total)

    @router.get(
        "/billing/export",
        summary="All bills as CSV",
        response_class=Response,
        responses={
            200: {"content": {"text/csv": {"schema": {"type": "string"}}}},
            **errors(400, 401, 503),
        },
        openapi_extra=OPENED_BY_ACCOUNTS,
    )
    async def export(caller: Caller, query: Asked) -> Any:
        """Streamed, the earliest day first."""
        return StreamingResponse(
            _csv(store.bills(caller.account_id, query)),
            media_type="text/csv",
            headers={"Content-Disposition": 'attachment; filename="bills.csv"'},
        )

    @router.post(
        "/admin/billing/run",
        summary="Make bills now",
        dependencies=[Depends(guard.admin)],
        response_model=BillingRunAnswer,
        responses=errors(401, 403, 503),
        openapi_extra=OPENED_BY_ACCOUNTS,
    )
    async def run() -> Any:
        """Waits for a run that is under way. Running it again changes nothing."""
        report = await make_bills()
        return BillingRunAnswer.model_validate(report, from_attributes=True)

    return router


async def _csv(portions: AsyncIterator[Sequence[Bill]]) -> AsyncIterator[bytes]:
    yield _lines([_COLUMNS])
    async for bills in portions:
        rows = [[getattr(bill, column) for column in _COLUMNS] for bill in bills]
        yield await asyncio.to_thread(_lines, rows)


def _lines(rows: Sequence[Sequence[Any]]) -> bytes:
    text = io.StringIO()
    csv.writer(text).writerows(rows)
    return text.getvalue().encode()
