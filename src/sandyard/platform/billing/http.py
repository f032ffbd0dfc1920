"""Calls of accounts about their bills, and of admins to make them now and to charge."""

import asyncio
import csv
import io
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from datetime import date, datetime
from decimal import Decimal
from typing import Annotated, Any, Self

from fastapi import APIRouter, Body, Depends, Header, Query, Response
from fastapi.responses import StreamingResponse
from pydantic import Field, StrictStr

from sandyard.kit.http.routes import joined
from sandyard.kit.http.schemas import Documented, PageAnswer, Paging, eg, example_of
from sandyard.kit.idempotency import KEY_FORM
from sandyard.platform.access.guard import AccessGuard
from sandyard.platform.access.routes import Caller, account_routes, admin_routes
from sandyard.platform.billing.jobs import BillingReport
from sandyard.platform.billing.model import Bill, Charge, ChargeType, MonthToDate, Sum, SumBy
from sandyard.platform.billing.ports import BillingStore, BillQuery
from sandyard.platform.billing.service import Charges, Statements
from sandyard.platform.entities.model import Listing
from sandyard.platform.http import fields
from sandyard.platform.usage.model import ServiceType

_SUM = {
    "key": "2026-10-30",
    "amount": "0.090000",
    "usage_seconds": 5400,
    "usage_milliseconds": 5400000,
    "cpu_hours": "1.500000",
    "memory_hours": "1.500000",
    "storage_hours": "0.000000",
}


class BillAnswer(fields.Answer):
    billing_id: str = eg("bil-2c5f8j1n4r7v")
    usage_id: str | None = eg("usg-5t8w1y4b7d0g", description="Null for a charge or a credit")
    project_id: str | None = eg("prj-4k8s0m2q6w1c9x7ab")
    sandbox_id: str | None = eg("sbx-1m4p7s0v3y6b9e2hk")
    billing_date: date = eg("2026-10-30", description="A UTC day")
    service_type: ServiceType = eg("sandbox_runtime")
    usage_seconds: int = eg(5400, description="Whole seconds; the days of a usage add up")
    usage_milliseconds: int = eg(5400000, description="What the amount is computed from")
    hourly_rate: fields.Money = eg(
        "0.060000",
        description="Rounded to 6 places; the amount is computed from the usage's exact rate",
    )
    amount: fields.Money = eg("0.090000")
    currency: fields.Currency = eg("USD")
    description: str | None
    created_at: datetime = eg("2026-10-31T00:05:00Z")
    corrects: str | None = Field(
        description="The bill that this one corrects; its numbers are then the difference"
    )
    cpu_hours: fields.Quantity = eg("1.500000")
    memory_hours: fields.Quantity = eg("1.500000")
    storage_hours: fields.Quantity = eg("0.000000")

    @classmethod
    def of(cls, bill: Bill, *, currency: str) -> Self:
        return super().of(bill, currency=currency, usage_milliseconds=bill.milliseconds)


class ChargeBody(fields.RequestBody):
    account_id: Annotated[StrictStr, Field(max_length=12, pattern=fields.ID)] = eg("123456789012")
    service_type: ChargeType = eg("charge", ServiceType.CHARGE)
    amount: fields.Amount = eg(
        "49.00", description="Of a credit too it is not negative; its bill's is"
    )
    description: Annotated[fields.Prose, Field(max_length=1000)] = eg("Support in October")


class BillPage(PageAnswer):
    bills: list[BillAnswer]
    next_cursor: str | None


class BillingSumAnswer(fields.Answer):
    key: str = Field(description="The day, project, sandbox or service")
    amount: fields.Money
    usage_seconds: int
    usage_milliseconds: int
    cpu_hours: fields.Quantity
    memory_hours: fields.Quantity
    storage_hours: fields.Quantity

    @classmethod
    def of(cls, found: Sum) -> Self:
        consumed = found.consumed
        return super().of(
            found,
            consumed,
            usage_seconds=consumed.seconds,
            usage_milliseconds=consumed.milliseconds,
        )


class BillingSumsAnswer(Documented):
    by: SumBy = eg("day")
    sums: list[BillingSumAnswer] = eg([_SUM])
    total: fields.Money = eg("0.090000")
    currency: fields.Currency = eg("USD")

    @classmethod
    def of(cls, by: SumBy, sums: Sequence[Sum], currency: str) -> Self:
        return cls(
            by=by,
            sums=[BillingSumAnswer.of(each) for each in sums],
            total=sum((each.consumed.amount for each in sums), Decimal(0)),
            currency=currency,
        )


class MonthToDateAnswer(fields.Answer):
    since: date = eg("2026-10-01", description="The first of the UTC month")
    until: datetime = eg("2026-10-30T18:00:00Z", description="Now")
    by: SumBy = eg("service_type")
    sums: list[BillingSumAnswer] = eg([_SUM | {"key": "sandbox_runtime"}])
    total: fields.Money = eg("0.090000")
    billed: fields.Money = eg("0.060000", description="Sum of the month's bills")
    unbilled: fields.Money = eg(
        "0.030000", description="Not billed yet; negative if bills have to be corrected"
    )
    currency: fields.Currency = eg("USD")
    cpu_hours: fields.Quantity = eg("1.500000")
    memory_hours: fields.Quantity = eg("1.500000")
    storage_hours: fields.Quantity = eg("0.000000")

    @classmethod
    def of(cls, by: SumBy, month: MonthToDate, currency: str) -> Self:
        total = month.total.amount
        return super().of(
            month,
            month.total,
            by=by,
            sums=[BillingSumAnswer.of(each) for each in month.sums],
            total=total,
            unbilled=total - month.billed,
            currency=currency,
        )


class BillingRunAnswer(Documented):
    storage_counted: int = eg(2, description="Sandboxes whose stored files were counted")
    usages: int = eg(5, description="Usages that were not completely billed")
    bills: int = eg(4, description="New bills, including corrections")
    spenders_notified: int = eg(0, description="Accounts that were notified of their month's cost")


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
    "cpu_hours",
    "memory_hours",
    "storage_hours",
    "corrects",
    "usage_milliseconds",
    "currency",
)


_Key = Annotated[
    str | None,
    Header(
        alias="Idempotency-Key",
        pattern=KEY_FORM,
        description="Tells a retry from a new request",
    ),
]
_By = Annotated[SumBy, Query(description="What to group the sums by")]


def bill_query(
    project_id: fields.OfProject = None,
    sandbox_id: fields.OfSandbox = None,
    service_type: Annotated[
        ServiceType | None, Query(description="Running, storing files, or charges and credits")
    ] = None,
    from_day: Annotated[fields.Day | None, Query(alias="from", description="Inclusive")] = None,
    to_day: Annotated[fields.Day | None, Query(alias="to", description="Inclusive")] = None,
) -> BillQuery:
    return BillQuery(project_id, sandbox_id, service_type, from_day, to_day)


BillQueryParameters = Annotated[BillQuery, Depends(bill_query)]


def create_billing_router(
    store: BillingStore,
    statements: Statements,
    charges: Charges,
    make_bills: Callable[[], Awaitable[BillingReport]],
    guard: AccessGuard,
    *,
    currency: str,
) -> APIRouter:
    routes = account_routes(guard, "/billing", tag="billing")
    admin = admin_routes(guard, "/admin/billing", tag="billing")

    @routes.get("", "List bills")
    async def list_bills(caller: Caller, paging: Paging, query: BillQueryParameters) -> BillPage:
        """One per usage and UTC day, corrections, charges and credits, latest day first."""
        listing = Listing(query, "-billing_date", **paging)
        page = await store.page(caller.account_id, listing)
        return BillPage.of(page, lambda bill: BillAnswer.of(bill, currency=currency))

    @routes.get("/summary", "Sum bills")
    async def sum_bills(
        caller: Caller, query: BillQueryParameters, by: _By = "day"
    ) -> BillingSumsAnswer:
        """By day, project, sandbox or service; the sums are exact."""
        sums = await store.sums(caller.account_id, query, by=by)
        return BillingSumsAnswer.of(by, sums, currency)

    @routes.get("/month-to-date", "Get this month's cost so far")
    async def get_month_to_date(
        caller: Caller, by: _By = "service_type", sandbox_id: fields.OfSandbox = None
    ) -> MonthToDateAnswer:
        """Includes what is not billed yet: usage that ended since the last bills, running sandboxes
        and stored files, all up to now; charges too."""
        month = await statements.month_to_date(caller.account_id, by=by, sandbox_id=sandbox_id)
        return MonthToDateAnswer.of(by, month, currency)

    @routes.get("/export", "Export all bills as CSV", response_class=Response, answers=_CSV_ANSWER)
    async def export_bills(caller: Caller, query: BillQueryParameters) -> StreamingResponse:
        """Streamed, earliest day first."""
        return StreamingResponse(
            _csv(store.bills(caller.account_id, query), currency),
            media_type="text/csv",
            headers={"Content-Disposition": 'attachment; filename="bills.csv"'},
        )

    @admin.post(
        "/charges",
        "Charge or credit an account",
        404,
        409,
        status_code=201,
        answers={200: {"model": BillAnswer, "description": "Made before by this key"}},
    )
    async def charge_account(
        admin: Caller, response: Response, body: Annotated[ChargeBody, Body()], key: _Key = None
    ) -> BillAnswer:
        """For what is no usage, such as support. Counts in the account's month and towards its
        spend threshold; bills never change, so a mistake is corrected by a credit."""
        bill, is_new = await charges.charge(
            body.account_id,
            Charge(body.service_type, body.amount, body.description),
            key=key,
            by=admin,
        )
        if not is_new:
            response.status_code = 200
        return BillAnswer.of(bill, currency=currency)

    @admin.post("/run", "Run billing now")
    async def run_billing() -> BillingRunAnswer:
        """Waits for a run in progress. Repeating it changes nothing."""
        return BillingRunAnswer.model_validate(await make_bills(), from_attributes=True)

    return joined(routes.router, admin.router)


async def _csv(portions: AsyncIterator[Sequence[Bill]], currency: str) -> AsyncIterator[bytes]:
    yield _lines([_COLUMNS])
    async for bills in portions:
        shown = [BillAnswer.of(bill, currency=currency) for bill in bills]
        rows = [[getattr(each, column) for column in _COLUMNS] for each in shown]
        yield await asyncio.to_thread(_lines, rows)


def _lines(rows: Sequence[Sequence[Any]]) -> bytes:
    text = io.StringIO()
    csv.writer(text).writerows(rows)
    return text.getvalue().encode()


_BILL = example_of(BillAnswer)
_CSV_ANSWER: dict[int | str, dict[str, Any]] = {
    200: {
        "content": {
            "text/csv": {
                "schema": {"type": "string"},
                "example": _lines([_COLUMNS, [_BILL[each] for each in _COLUMNS]]).decode(),
            }
        }
    }
}
