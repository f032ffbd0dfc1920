"""Bills, and when an account is told of what it spends."""

from dataclasses import dataclass
from datetime import date, datetime
from decimal import Decimal

from sandyard.platform.notifications.model import Notice, NotificationType
from sandyard.platform.usage.model import DayShare, Usage


@dataclass(frozen=True, slots=True)
class Bill:
    """What one UTC day of one usage came to."""

    billing_id: str
    usage_id: str
    account_id: str
    project_id: str | None
    sandbox_id: str | None
    billing_date: date
    service_type: str
    usage_seconds: int
    hourly_rate: Decimal
    amount: Decimal
    description: str | None
    created_at: datetime


@dataclass(frozen=True, slots=True)
class Sum:
    """What a day, a project or a sandbox came to."""

    key: str
    amount: Decimal
    usage_seconds: int


def bill_for(usage: Usage, share: DayShare, *, billing_id: str, now: datetime) -> Bill:
    return Bill(
        billing_id=billing_id,
        usage_id=usage.usage_id,
        account_id=usage.account_id,
        project_id=usage.project_id,
        sandbox_id=usage.sandbox_id,
        billing_date=share.day,
        service_type=usage.service_type,
        usage_seconds=share.seconds,
        hourly_rate=usage.hourly_rate,
        amount=share.amount,
        description=f"{usage.service_type} of {usage.sandbox_id}, {share.seconds} s",
        created_at=now,
    )


def spend_notice(spent: Decimal, threshold: Decimal) -> Notice:
    return Notice(
        title="Your spending has reached its threshold",
        message=f"This month came to {spent:f}; your threshold is {threshold:f}.",
        type=NotificationType.WARNING,
        related_entity_type="billing",
    )
