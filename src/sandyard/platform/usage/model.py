"""The cost of running and storage: milliseconds at a rate that is fixed at the start."""

from collections.abc import Iterator
from dataclasses import astuple, dataclass, replace
from datetime import UTC, date, datetime, time, timedelta
from decimal import ROUND_HALF_EVEN, Decimal
from enum import StrEnum
from operator import add, sub
from typing import Any, ClassVar, Protocol

from sandyard.kit.changes.transitions import Cause, Entity, Transition, changed, created
from sandyard.kit.sizes import GIGABYTE

NOTHING = Decimal("0.000000")

_PLACES = Decimal("0.000001")
_HOUR_MS = 3_600_000
_SECOND_MS = 1000
_MILLISECOND = timedelta(milliseconds=1)
_LONGEST_REASON = 255
_DAY = timedelta(days=1)


class ServiceType(StrEnum):
    RUNTIME = "sandbox_runtime"
    STORAGE = "storage"
    CHARGE = "charge"
    CREDIT = "credit"


class Stored(Entity, Protocol):
    """What is billed until it is deleted."""

    @property
    def storage_counted_until(self) -> datetime | None: ...

    @property
    def deleted_at(self) -> datetime | None: ...


@dataclass(frozen=True, slots=True)
class PriceList:
    """Prices per hour."""

    vcpu: Decimal
    memory_gb: Decimal
    storage_gb: Decimal
    currency: str = "USD"

    def of_running(self, *, cpu: float, memory_gb: float) -> Decimal:
        """The hourly rate, not rounded."""
        return self.vcpu * Decimal(str(cpu)) + self.memory_gb * Decimal(str(memory_gb))

    def of_storage(self, *, size_bytes: int) -> Decimal:
        """The hourly rate, not rounded."""
        return self.storage_gb * size_bytes / GIGABYTE


@dataclass(frozen=True, slots=True)
class Consumer:
    """The sandbox that a usage belongs to, with its account and project at that time; None for
    what an account stores without one."""

    sandbox_id: str | None
    account_id: str
    project_id: str | None


@dataclass(frozen=True, slots=True)
class Consumption:
    """The total of a usage, a part of one or several. Exact, so that parts add up."""

    seconds: int = 0
    """Whole seconds of the time from the start; of a part, the difference of two such counts."""
    milliseconds: int = 0
    amount: Decimal = NOTHING
    cpu_hours: Decimal = NOTHING
    memory_hours: Decimal = NOTHING
    storage_hours: Decimal = NOTHING

    def __add__(self, other: "Consumption") -> "Consumption":
        return Consumption(*map(add, astuple(self), astuple(other)))

    def __sub__(self, other: "Consumption") -> "Consumption":
        return Consumption(*map(sub, astuple(self), astuple(other)))


@dataclass(frozen=True, slots=True)
class Usage:
    """A period of running, or of storing a snapshot; open while it has no end."""

    SUBJECT: ClassVar[str] = "usage_id"
    OWNER: ClassVar[str | None] = "user_account_id"

    usage_id: str
    sandbox_id: str | None
    user_account_id: str
    project_id: str | None
    service_type: ServiceType
    start_time: datetime
    end_time: datetime | None
    hourly_rate: Decimal
    """Fixed at the start; rounded to six places, see `rate`."""
    cpu: float
    memory_gb: float
    storage_gb: float
    created_at: datetime
    end_reason: str | None = None
    running_seconds: int = 0
    cpu_hours: float = 0.0
    memory_hours: float = 0.0
    storage_hours: float = 0.0
    cost: Decimal = NOTHING
    """Zero while it is open; see `cost_until`."""
    is_billed: bool = False
    """Set once all of a closed usage is on bills."""
    deadline_at: datetime | None = None
    """Nothing is counted after it, even if the end is not recorded."""
    exact_rate: Decimal | None = None
    """The hourly rate, if it has more than six places."""
    milliseconds: int | None = None
    """What is counted of a closed usage; None for one of an older version, which is counted in
    whole seconds of the clock."""
    sequence: int = 0

    @property
    def rate(self) -> Decimal:
        """Per hour. The cost is rounded, the rate is not."""
        return self.hourly_rate if self.exact_rate is None else self.exact_rate

    def counted_until(self, moment: datetime) -> datetime:
        """This moment, or the end or the deadline if that is earlier."""
        return min(each for each in (moment, self.end_time, self.deadline_at) if each is not None)

    def milliseconds_until(self, moment: datetime) -> int:
        """Counted from the start to this moment. A run counts for a second at least."""
        end = self.end_time
        if end is not None and moment >= end and self.milliseconds is not None:
            return self.milliseconds
        if moment <= self.start_time:
            return 0
        until = self.counted_until(moment)
        if end is not None and self.milliseconds is None:
            return _SECOND_MS * max(0, _whole_seconds(until) - _whole_seconds(self.start_time))
        return max(self.least_milliseconds, (until - self.start_time) // _MILLISECOND)

    @property
    def least_milliseconds(self) -> int:
        return _SECOND_MS if self.service_type is ServiceType.RUNTIME else 0

    def cost_until(self, moment: datetime) -> Decimal:
        return cost_of(self.milliseconds_until(moment), self.rate)

    def consumed_until(self, moment: datetime) -> Consumption:
        """From the start to this moment, or to the end if that is earlier."""
        milliseconds = self.milliseconds_until(moment)
        units = (self.cpu, self.memory_gb, self.storage_gb)
        return Consumption(
            milliseconds // _SECOND_MS,
            milliseconds,
            cost_of(milliseconds, self.rate),
            *(hours_of(milliseconds, each) for each in units),
        )


@dataclass(frozen=True, slots=True)
class DayShare:
    day: date
    consumed: Consumption


def open_usage(
    consumer: Consumer,
    *,
    usage_id: str,
    cpu: float,
    memory_gb: float,
    prices: PriceList,
    started_at: datetime,
    deadline_at: datetime,
    cause: Cause,
) -> Transition[Usage]:
    """The usage of a sandbox that runs from then on, until its deadline at the latest."""
    usage = Usage(
        usage_id=usage_id,
        sandbox_id=consumer.sandbox_id,
        user_account_id=consumer.account_id,
        project_id=consumer.project_id,
        service_type=ServiceType.RUNTIME,
        start_time=started_at,
        end_time=None,
        **_rates(prices.of_running(cpu=cpu, memory_gb=memory_gb)),
        cpu=cpu,
        memory_gb=memory_gb,
        storage_gb=0.0,
        created_at=started_at,
        deadline_at=deadline_at,
    )
    return created(usage, "usage.opened", cause)


def cap_usage(usage: Usage, *, deadline_at: datetime, cause: Cause) -> Transition[Usage] | None:
    """Set an earlier deadline, not before the start. None if the usage is closed, or already has
    one that is as early."""
    capped_at = max(deadline_at, usage.start_time)
    is_earlier = usage.deadline_at is None or capped_at < usage.deadline_at
    if usage.end_time is not None or not is_earlier:
        return None
    return changed(usage, replace(usage, deadline_at=capped_at), "usage.capped", cause)


def move_usage_deadline(usage: Usage, deadline_at: datetime, *, cause: Cause) -> Transition[Usage]:
    moved = replace(usage, deadline_at=deadline_at)
    return changed(usage, moved, "usage.deadline_moved", cause)


def close_usage(usage: Usage, *, ended_at: datetime, cause: Cause) -> Transition[Usage]:
    """Close the usage with its end, cost and hours. An end before the start is taken as the start,
    one after the deadline as the deadline."""
    ended = _consumed(usage, until=usage.counted_until(max(ended_at, usage.start_time)))
    closed = replace(ended, end_reason=(cause.reason or "")[:_LONGEST_REASON] or None)
    return changed(usage, closed, "usage.closed", cause)


def record_run(
    consumer: Consumer,
    *,
    usage_id: str,
    cpu: float,
    memory_gb: float,
    prices: PriceList,
    started_at: datetime,
    ended_at: datetime,
    cause: Cause,
) -> Transition[Usage]:
    """A run that had ended before it was recorded, as a closed usage."""
    opened = open_usage(
        consumer,
        usage_id=usage_id,
        cpu=cpu,
        memory_gb=memory_gb,
        prices=prices,
        started_at=started_at,
        deadline_at=max(started_at, ended_at),
        cause=cause,
    )
    closed = close_usage(opened.result, ended_at=ended_at, cause=cause)
    return created(closed.result, "usage.recorded", cause)


def storage_usage(
    consumer: Consumer,
    *,
    usage_id: str,
    size_bytes: int,
    prices: PriceList,
    since: datetime,
    until: datetime,
) -> Usage | None:
    """The storage of a snapshot of this size, as a closed usage; None if the period is empty."""
    if until <= since:
        return None
    usage = Usage(
        usage_id=usage_id,
        sandbox_id=consumer.sandbox_id,
        user_account_id=consumer.account_id,
        project_id=consumer.project_id,
        service_type=ServiceType.STORAGE,
        start_time=since,
        end_time=None,
        **_rates(prices.of_storage(size_bytes=size_bytes)),
        cpu=0.0,
        memory_gb=0.0,
        storage_gb=size_bytes / GIGABYTE,
        created_at=until,
    )
    return _consumed(usage, until=until)


def record_storage(usage: Usage, *, cause: Cause) -> Transition[Usage]:
    return created(usage, "usage.recorded", cause)


def count_stored(
    stored: Stored,
    consumer: Consumer,
    kind: str,
    *,
    size_bytes: int,
    until: datetime,
    usage_id: str,
    prices: PriceList,
    cause: Cause,
) -> tuple[Transition[Any], ...] | None:
    """The storage of something up to then, or until it was deleted, becomes a usage; the event of
    its own is of this kind. None if it is already counted."""
    since, deleted_at = stored.storage_counted_until, stored.deleted_at
    if since is None:
        return None
    end = until if deleted_at is None else min(until, deleted_at)
    usage = storage_usage(
        consumer, usage_id=usage_id, size_bytes=size_bytes, prices=prices, since=since, until=end
    )
    is_over = deleted_at is not None and end >= deleted_at
    if usage is None and not is_over:
        return None
    counted: Stored = replace(stored, storage_counted_until=None if is_over else end)  # type: ignore[type-var]
    change = changed(stored, counted, kind, cause)
    return (change,) if usage is None else (change, record_storage(usage, cause=cause))


def mark_billed(usage: Usage, *, cause: Cause) -> Transition[Usage]:
    return changed(usage, replace(usage, is_billed=True), "usage.billed", cause)


def _rates(rate: Decimal) -> dict[str, Any]:
    shown = rounded(rate)
    return {"hourly_rate": shown, "exact_rate": None if shown == rate else rate}


def _consumed(usage: Usage, *, until: datetime) -> Usage:
    """The usage, ended then, with its time, hours and cost."""
    milliseconds = max(usage.least_milliseconds, usage.milliseconds_until(until))
    ended = replace(usage, end_time=until, milliseconds=milliseconds)
    consumed = ended.consumed_until(until)
    return replace(
        ended,
        running_seconds=consumed.seconds if usage.service_type is ServiceType.RUNTIME else 0,
        cpu_hours=float(consumed.cpu_hours),
        memory_hours=float(consumed.memory_hours),
        storage_hours=float(consumed.storage_hours),
        cost=consumed.amount,
    )


def cost_of(milliseconds: int, hourly_rate: Decimal) -> Decimal:
    return rounded(hourly_rate * milliseconds / _HOUR_MS)


def hours_of(milliseconds: int, units: float) -> Decimal:
    """Hours multiplied by this many vCPU or GB."""
    return rounded(Decimal(str(units)) * milliseconds / _HOUR_MS)


def rounded(amount: Decimal) -> Decimal:
    return amount.quantize(_PLACES, rounding=ROUND_HALF_EVEN)


def shares_by_day(usage: Usage, *, until: datetime) -> Iterator[DayShare]:
    """The usage up to this moment, split at UTC midnight.

    A day's share is the consumption up to its end minus that up to its start, so that the days of a
    usage always add up to its total.
    """
    last = usage.counted_until(until)
    day = usage.start_time.astimezone(UTC).date()
    before = Consumption()
    while midnight(day) <= last:
        consumed = usage.consumed_until(min(midnight(day) + _DAY, last))
        if consumed.milliseconds > before.milliseconds:
            yield DayShare(day, consumed - before)
        before = consumed
        day += _DAY


def billable_until(usage: Usage, *, now: datetime) -> datetime:
    """A closed usage is billed completely; an open one up to the last midnight, as its day is not
    over."""
    return usage.end_time or midnight(now.astimezone(UTC).date())


def midnight(day: date) -> datetime:
    return datetime.combine(day, time(), tzinfo=UTC)


def _whole_seconds(moment: datetime) -> int:
    return int(moment.timestamp())
