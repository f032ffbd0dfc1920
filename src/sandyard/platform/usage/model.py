"""What running and keeping cost: whole seconds at a rate that is fixed at the start."""

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, date, datetime, time, timedelta
from decimal import ROUND_HALF_EVEN, Decimal
from enum import StrEnum

_PLACES = Decimal("0.000001")
_HOUR = 3600
_GIGABYTE = 10**9
_DAY = timedelta(days=1)


class ServiceType(StrEnum):
    RUNTIME = "sandbox_runtime"
    STORAGE = "storage"


@dataclass(frozen=True, slots=True)
class PriceList:
    """Prices per hour."""

    vcpu: Decimal
    memory_gb: Decimal
    storage_gb: Decimal

    def of_running(self, *, cpu: float, memory_gb: float) -> Decimal:
        return rounded(self.vcpu * Decimal(str(cpu)) + self.memory_gb * Decimal(str(memory_gb)))

    def of_keeping(self, *, size_bytes: int) -> Decimal:
        return rounded(self.storage_gb * size_bytes / _GIGABYTE)


@dataclass(frozen=True, slots=True)
class Usage:
    """A stretch of running, or of keeping a snapshot; open while it has no end."""

    usage_id: str
    sandbox_id: str
    account_id: str
    project_id: str | None
    service_type: ServiceType
    start_time: datetime
    end_time: datetime | None
    hourly_rate: Decimal
    cpu: float
    memory_gb: float
    storage_gb: float

    def seconds_until(self, moment: datetime) -> int:
        """Whole seconds from the start to this moment, or to the end if that was before."""
        until = moment if self.end_time is None else min(moment, self.end_time)
        return max(0, int(until.timestamp()) - int(self.start_time.timestamp()))

    def cost_until(self, moment: datetime) -> Decimal:
        return cost_of(self.seconds_until(moment), self.hourly_rate)


@dataclass(frozen=True, slots=True)
class DayShare:
    """What one UTC day has of a usage."""

    day: date
    seconds: int
    amount: Decimal


def cost_of(seconds: int, hourly_rate: Decimal) -> Decimal:
    return rounded(hourly_rate * seconds / _HOUR)


def rounded(amount: Decimal) -> Decimal:
    return amount.quantize(_PLACES, rounding=ROUND_HALF_EVEN)


def shares_by_day(usage: Usage, *, until: datetime) -> Iterator[DayShare]:
    """The usage up to this moment, split at UTC midnight.

    A day's amount is the cost up to its end less that up to its start, so that the days of a
    usage always add up to what it cost.
    """
    last = until if usage.end_time is None else min(until, usage.end_time)
    day = usage.start_time.astimezone(UTC).date()
    before_seconds, before_cost = 0, Decimal(0)
    while midnight(day) < last:
        end = min(midnight(day) + _DAY, last)
        seconds, cost = usage.seconds_until(end), usage.cost_until(end)
        if seconds > before_seconds:
            yield DayShare(day, seconds - before_seconds, cost - before_cost)
        before_seconds, before_cost = seconds, cost
        day += _DAY


def billable_until(usage: Usage, *, now: datetime) -> datetime:
    """A closed usage is billed whole; an open one up to the last midnight, as its day goes on."""
    return usage.end_time or midnight(now.astimezone(UTC).date())


def midnight(day: date) -> datetime:
    return datetime.combine(day, time(), tzinfo=UTC)
