"""Bills, and when an account is notified of its spending."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import date, datetime
from decimal import Decimal
from typing import Any, ClassVar, Literal

from sandyard.kit.changes.transitions import DATA, Cause, Transition, created
from sandyard.kit.ids import IdMaker
from sandyard.platform.notifications import model
from sandyard.platform.usage import model as usage_model

ChargeType = Literal[usage_model.ServiceType.CHARGE, usage_model.ServiceType.CREDIT]
SumBy = Literal["day", "project", "sandbox", "service_type"]

BILLING = "billing"
"""The related object of notifications about spending."""


@dataclass(frozen=True, slots=True)
class Bill:
    """The cost of one UTC day of one usage, or a charge."""

    SUBJECT: ClassVar[str] = "billing_id"
    OWNER: ClassVar[str | None] = "user_account_id"

    billing_id: str
    usage_id: str | None
    """None for a charge or a credit, which an admin made."""
    user_account_id: str
    project_id: str | None
    sandbox_id: str | None
    billing_date: date
    service_type: str
    usage_seconds: int
    hourly_rate: Decimal
    amount: Decimal
    description: str | None
    created_at: datetime
    corrects: str | None = None
    """The bill that this one corrects: its seconds, hours and amount are the difference."""
    cpu_hours: Decimal = field(default=usage_model.NOTHING, metadata=DATA)
    memory_hours: Decimal = field(default=usage_model.NOTHING, metadata=DATA)
    storage_hours: Decimal = field(default=usage_model.NOTHING, metadata=DATA)
    usage_milliseconds: int | None = field(default=None, metadata=DATA)
    """Data, because they follow from the usage. None if it was billed in whole seconds."""
    sequence: int = 0

    @property
    def consumed(self) -> usage_model.Consumption:
        hours = (self.cpu_hours, self.memory_hours, self.storage_hours)
        return usage_model.Consumption(self.usage_seconds, self.milliseconds, self.amount, *hours)

    @property
    def milliseconds(self) -> int:
        exact = self.usage_milliseconds
        return 1000 * self.usage_seconds if exact is None else exact


@dataclass(frozen=True, slots=True)
class Charge:
    """For something that is no usage, or a credit."""

    service_type: ChargeType
    amount: Decimal
    description: str


@dataclass(frozen=True, slots=True)
class UsageVersion:
    """A fact: the usage has not changed since it was read."""

    usage_id: str
    sequence: int


@dataclass(frozen=True, slots=True)
class SpendWarnings:
    """A fact: how often the account was warned of its spending this month."""

    account_id: str
    month: date
    count: int


@dataclass(frozen=True, slots=True)
class Spending:
    """An account with a threshold, and its usages and charges of the month."""

    threshold: Decimal
    usages: Sequence[usage_model.Usage]
    warnings: SpendWarnings
    charged: Decimal = usage_model.NOTHING
    """The sum of its charges, less its credits."""


@dataclass(frozen=True, slots=True)
class Sum:
    """The total of a day, a project, a sandbox or a service."""

    key: str
    consumed: usage_model.Consumption


@dataclass(frozen=True, slots=True)
class MonthToDate:
    """The total of an account's current month, billed or not."""

    since: date
    until: datetime
    sums: Sequence[Sum]
    billed: Decimal
    """The total of the month's bills."""

    @property
    def total(self) -> usage_model.Consumption:
        return sum((each.consumed for each in self.sums), usage_model.Consumption())


def bill_usage(
    usage: usage_model.Usage, bills: Iterable[Bill], *, new_id: IdMaker, cause: Cause
) -> tuple[Transition[Any], ...]:
    """Bill each day up to the usage's end, or, while it is open, up to the last midnight.

    `bills` are its existing ones, and do not change. Once it is closed, each day whose bills differ
    from its actual total gets one more with the difference: the true end may have become known only
    after a midnight that the usage did not reach.
    """
    if usage.is_billed:
        return ()
    until = usage_model.billable_until(usage, now=cause.at)
    shares = {share.day: share.consumed for share in usage_model.shares_by_day(usage, until=until)}
    billed = _by_day(bills)
    unchanged = UsageVersion(usage.usage_id, usage.sequence)
    new = [
        created(
            _bill(usage, day, share, new_id(), cause),
            "bill.created",
            cause,
            preconditions=(unchanged,),
        )
        for day, share in shares.items()
        if day not in billed and share.amount  # amounts below a millionth are not billed
    ]
    if usage.end_time is None:
        return tuple(new)
    corrections = [
        created(each, "bill.corrected", cause)
        for day, made in billed.items()
        if (each := _correction(made, shares.get(day, usage_model.Consumption()), new_id, cause))
    ]
    return (*corrections, *new, usage_model.mark_billed(usage, cause=cause))


def charge(account_id: str, new: Charge, *, billing_id: str, cause: Cause) -> Transition[Bill]:
    """Bill the account today; a credit's amount is negative."""
    is_credit = new.service_type is usage_model.ServiceType.CREDIT
    bill = Bill(
        billing_id=billing_id,
        usage_id=None,
        user_account_id=account_id,
        project_id=None,
        sandbox_id=None,
        billing_date=cause.at.date(),
        service_type=new.service_type,
        usage_seconds=0,
        hourly_rate=usage_model.NOTHING,
        amount=usage_model.rounded(usage_model.NOTHING - new.amount if is_credit else new.amount),
        description=new.description,
        created_at=cause.at,
        usage_milliseconds=0,
    )
    return created(bill, "bill.charged", cause)


def is_repeat(made: Bill, again: Bill) -> bool:
    """Whether these are one charge, requested twice."""
    same = ("user_account_id", "service_type", "amount", "description")
    return all(getattr(made, each) == getattr(again, each) for each in same)


def sum_usages(
    usages: Iterable[usage_model.Usage], *, since: date, until: datetime, by: SumBy
) -> Mapping[str, usage_model.Consumption]:
    """Their totals from the beginning of that day on, as bills would show them."""
    sums: dict[str, usage_model.Consumption] = {}
    for usage in usages:
        keys = {
            "project": usage.project_id or "",
            "sandbox": usage.sandbox_id or "",
            "service_type": usage.service_type.value,
        }
        for share in usage_model.shares_by_day(usage, until=until):
            if share.day >= since:
                key = keys[by] if by in keys else share.day.isoformat()
                sums[key] = sums.get(key, usage_model.Consumption()) + share.consumed
    return sums


def warn_of_spending(
    spending: Spending, *, currency: str, notification_id: str, cause: Cause
) -> Transition[model.Notification] | None:
    """Once a month, when the month's total reaches the threshold."""
    warnings = spending.warnings
    month = usage_model.midnight(warnings.month)
    spent = sum(
        (each.cost_until(cause.at) - each.cost_until(month) for each in spending.usages),
        spending.charged,
    )
    if warnings.count or spent < spending.threshold:
        return None
    warned = model.create_notification(
        _spend_notice(spent, spending.threshold, currency),
        notification_id=notification_id,
        account_id=warnings.account_id,
        cause=cause,
    )
    return replace(warned, preconditions=(warnings,))


def _by_day(bills: Iterable[Bill]) -> Mapping[date, Sequence[Bill]]:
    """The bills of each day, the original before its corrections."""
    found: dict[date, list[Bill]] = {}
    for bill in sorted(bills, key=lambda each: each.corrects is not None):
        found.setdefault(bill.billing_date, []).append(bill)
    return found


def _bill(
    usage: usage_model.Usage,
    day: date,
    share: usage_model.Consumption,
    billing_id: str,
    cause: Cause,
) -> Bill:
    stored = usage.sandbox_id or "an image"
    return Bill(
        billing_id=billing_id,
        usage_id=usage.usage_id,
        user_account_id=usage.user_account_id,
        project_id=usage.project_id,
        sandbox_id=usage.sandbox_id,
        billing_date=day,
        service_type=usage.service_type,
        usage_seconds=share.seconds,
        hourly_rate=usage.hourly_rate,
        amount=share.amount,
        description=f"{usage.service_type} of {stored}, {_seconds(share)} s",
        created_at=cause.at,
        cpu_hours=share.cpu_hours,
        memory_hours=share.memory_hours,
        storage_hours=share.storage_hours,
        usage_milliseconds=share.milliseconds,
    )


def _correction(
    bills: Sequence[Bill], share: usage_model.Consumption, new_id: IdMaker, cause: Cause
) -> Bill | None:
    """The correction that brings a day's bills to its share; None if they match."""
    first = bills[0]
    difference = share - sum((each.consumed for each in bills), usage_model.Consumption())
    if not (difference.milliseconds or difference.amount):
        return None
    return replace(
        first,
        billing_id=new_id(),
        corrects=first.billing_id,
        usage_seconds=difference.seconds,
        amount=difference.amount,
        description=f"correction of {first.billing_id}, {_seconds(difference)} s",
        created_at=cause.at,
        cpu_hours=difference.cpu_hours,
        memory_hours=difference.memory_hours,
        storage_hours=difference.storage_hours,
        usage_milliseconds=difference.milliseconds,
    )


def _seconds(consumed: usage_model.Consumption) -> str:
    return f"{Decimal(consumed.milliseconds) / 1000:f}"


def _spend_notice(spent: Decimal, threshold: Decimal, currency: str) -> model.Notice:
    return model.Notice(
        title="Your spending has reached its threshold",
        message=f"This month's cost is {spent:f} {currency}; your threshold is {threshold:f}.",
        type=model.NotificationType.WARNING,
        related_entity_type=BILLING,
    )
