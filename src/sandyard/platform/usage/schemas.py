"""The answers about usage, as the OpenAPI document describes them."""

from datetime import datetime
from typing import Self

from pydantic import Field

from sandyard.kit.http.schemas import PageAnswer, example
from sandyard.platform.http.fields import Answer, Currency, Money, Quantity, Rate
from sandyard.platform.usage.model import ServiceType, Usage


class UsageAnswer(Answer):
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
    sandbox_id: str
    project_id: str | None
    service_type: ServiceType
    start_time: datetime
    end_time: datetime | None = Field(description="Null while it is open")
    seconds: int = Field(description="The whole seconds of the milliseconds")
    milliseconds: int = Field(
        description="Up to now, if it is open; a run counts for a second at least"
    )
    hourly_rate: Rate = Field(description="Fixed at the start, not rounded")
    cost: Money = Field(description="Milliseconds times rate, rounded half to even to 6 places")
    currency: Currency
    cpu_hours: Quantity = Field(description="vCPU hours, rounded likewise")
    memory_hours: Quantity = Field(description="GB hours of memory, rounded likewise")
    storage_hours: Quantity = Field(description="GB hours of stored files, rounded likewise")

    @classmethod
    def of(cls, usage: Usage, now: datetime, currency: str) -> Self:
        consumed = usage.consumed_until(now)
        return super().of(
            consumed, usage, hourly_rate=usage.rate, cost=consumed.amount, currency=currency
        )


class UsagePage(PageAnswer):
    usage: list[UsageAnswer]
    next_cursor: str | None
