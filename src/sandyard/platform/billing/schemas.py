"""The answers about bills, as the OpenAPI document describes them."""

from collections.abc import Sequence
from datetime import date, datetime
from decimal import Decimal
from typing import Annotated, Self

from pydantic import BaseModel, Field, StrictStr

from sandyard.kit.http.schemas import PageAnswer, example, strict_example
from sandyard.platform.billing.model import Bill, ChargeType, MonthToDate, Sum, SumBy
from sandyard.platform.http.fields import (
    ID,
    Amount,
    Answer,
    Currency,
    Money,
    Prose,
    Quantity,
    RequestBody,
)
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


class BillAnswer(Answer):
    model_config = example(
        billing_id="bil-2c5f8j1n4r7v",
        usage_id="usg-5t8w1y4b7d0g",
        project_id="prj-4k8s0m2q6w1c9x7ab",
        sandbox_id="sbx-1m4p7s0v3y6b9e2hk",
        billing_date="2026-10-30",
        service_type="sandbox_runtime",
        usage_seconds=5400,
        usage_milliseconds=5400000,
        hourly_rate="0.060000",
        amount="0.090000",
        currency="USD",
        description=None,
        created_at="2026-10-31T00:05:00Z",
        corrects=None,
        cpu_hours="1.500000",
        memory_hours="1.500000",
        storage_hours="0.000000",
    )

    billing_id: str
    usage_id: str | None = Field(description="Null for a charge or a credit")
    project_id: str | None
    sandbox_id: str | None
    billing_date: date = Field(description="A UTC day")
    service_type: ServiceType
    usage_seconds: int = Field(description="Whole seconds; the days of a usage add up")
    usage_milliseconds: int = Field(description="What the amount is computed from")
    hourly_rate: Money = Field(
        description="Rounded to 6 places; the amount is computed from the usage's exact rate"
    )
    amount: Money
    currency: Currency
    description: str | None
    created_at: datetime
    corrects: str | None = Field(
        description="The bill that this one corrects; its numbers are then the difference"
    )
    cpu_hours: Quantity
    memory_hours: Quantity
    storage_hours: Quantity

    @classmethod
    def of(cls, bill: Bill, *, currency: str) -> Self:
        return super().of(bill, currency=currency, usage_milliseconds=bill.milliseconds)


class ChargeBody(RequestBody):
    model_config = strict_example(
        account_id="123456789012",
        service_type="charge",
        amount="49.00",
        description="Support in October",
    )

    account_id: Annotated[StrictStr, Field(max_length=12, pattern=ID)]
    service_type: ChargeType = ServiceType.CHARGE
    amount: Amount = Field(description="Of a credit too it is not negative; its bill's is")
    description: Annotated[Prose, Field(max_length=1000)]


class BillPage(PageAnswer):
    bills: list[BillAnswer]
    next_cursor: str | None


class BillingSumAnswer(Answer):
    key: str = Field(description="The day, project, sandbox or service")
    amount: Money
    usage_seconds: int
    usage_milliseconds: int
    cpu_hours: Quantity
    memory_hours: Quantity
    storage_hours: Quantity

    @classmethod
    def of(cls, found: Sum) -> Self:
        consumed = found.consumed
        return super().of(
            found,
            consumed,
            usage_seconds=consumed.seconds,
            usage_milliseconds=consumed.milliseconds,
        )


class BillingSumsAnswer(BaseModel):
    model_config = example(
        by="day",
        sums=[_SUM],
        total="0.090000",
        currency="USD",
    )

    by: SumBy
    sums: list[BillingSumAnswer]
    total: Money
    currency: Currency

    @classmethod
    def of(cls, by: SumBy, sums: Sequence[Sum], currency: str) -> Self:
        return cls(
            by=by,
            sums=[BillingSumAnswer.of(each) for each in sums],
            total=sum((each.consumed.amount for each in sums), Decimal(0)),
            currency=currency,
        )


class MonthToDateAnswer(Answer):
    model_config = example(
        since="2026-10-01",
        until="2026-10-30T18:00:00Z",
        by="service_type",
        sums=[_SUM | {"key": "sandbox_runtime"}],
        total="0.090000",
        billed="0.060000",
        unbilled="0.030000",
        currency="USD",
        cpu_hours="1.500000",
        memory_hours="1.500000",
        storage_hours="0.000000",
    )

    since: date = Field(description="The first of the UTC month")
    until: datetime = Field(description="Now")
    by: SumBy
    sums: list[BillingSumAnswer]
    total: Money
    billed: Money = Field(description="Sum of the month's bills")
    unbilled: Money = Field(description="Not billed yet; negative if bills have to be corrected")
    currency: Currency
    cpu_hours: Quantity
    memory_hours: Quantity
    storage_hours: Quantity

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


class BillingRunAnswer(BaseModel):
    model_config = example(storage_counted=2, usages=5, bills=4, spenders_notified=0)

    storage_counted: int = Field(description="Sandboxes whose stored files were counted")
    usages: int = Field(description="Usages that were not completely billed")
    bills: int = Field(description="New bills, including corrections")
    spenders_notified: int = Field(description="Accounts that were notified of their month's cost")
