"""Calls of accounts about their bills, and of admins to make them now and to charge."""

import asyncio
import csv
import io
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from typing import Annotated, Any

from fastapi import APIRouter, Body, Depends, Header, Query, Response
from fastapi.responses import StreamingResponse

from sandyard.kit.http.routes import joined
from sandyard.kit.http.schemas import Cursor, Limit, example_of
from sandyard.kit.paging import DEFAULT_LIMIT
from sandyard.kit.patterns import pattern
from sandyard.platform.access.guard import AccessGuard
from sandyard.platform.access.routes import Caller, account_routes, admin_routes
from sandyard.platform.billing.jobs import BillingReport
from sandyard.platform.billing.model import Bill, Charge, SumBy
from sandyard.platform.billing.ports import BillingStore, BillQuery
from sandyard.platform.billing.schemas import (
    BillAnswer,
    BillingRunAnswer,
    BillingSumsAnswer,
    BillPage,
    ChargeBody,
    MonthToDateAnswer,
)
from sandyard.platform.billing.service import Charges, Statements
from sandyard.platform.entities.model import Listing
from sandyard.platform.http.fields import Day, OfProject, OfSandbox
from sandyard.platform.usage.model import ServiceType

_KEY = pattern(r"^[!-~]{1,128}$", "must be 1 to 128 ASCII characters, without spaces")
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
        pattern=_KEY,
        description="Tells a retry from a new request",
    ),
]
_By = Annotated[SumBy, Query(description="What to group the sums by")]


def bill_query(
    project_id: OfProject = None,
    sandbox_id: OfSandbox = None,
    service_type: Annotated[
        ServiceType | None, Query(description="Running, storing files, or charges and credits")
    ] = None,
    from_day: Annotated[Day | None, Query(alias="from", description="Inclusive")] = None,
    to_day: Annotated[Day | None, Query(alias="to", description="Inclusive")] = None,
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
    prefix: str,
    currency: str,
) -> APIRouter:
    routes = account_routes(guard, prefix=f"{prefix}/billing", tag="billing")
    admin = admin_routes(guard, prefix=f"{prefix}/admin/billing", tag="billing")

    @routes.get("", "List bills")
    async def list_bills(
        caller: Caller,
        query: BillQueryParameters,
        limit: Limit = DEFAULT_LIMIT,
        cursor: Cursor = None,
    ) -> BillPage:
        """One per usage and UTC day, corrections, charges and credits, latest day first."""
        listing = Listing(query, "-billing_date", limit, cursor)
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
        caller: Caller, by: _By = "service_type", sandbox_id: OfSandbox = None
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
