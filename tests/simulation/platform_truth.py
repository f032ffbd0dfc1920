"""What the rows tell of sandboxes, beside what their machines really did."""

from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime, timedelta
from decimal import Decimal
from fractions import Fraction
from typing import Any, get_args

from sandyard.kit.changes.events import Step, steps_of
from sandyard.kit.changes.transitions import subject_of
from sandyard.kit.sql.entities import find_entities
from sandyard.platform.billing.model import Bill, MonthToDate, SumBy
from sandyard.platform.billing.service import Statements
from sandyard.platform.billing.sql import BILLS, SqlBillingStore
from sandyard.platform.events.entities import platform_events, platform_transitions
from sandyard.platform.sandboxes.model import ACTIVE, Sandbox, Status
from sandyard.platform.sandboxes.sql.store import SANDBOXES
from sandyard.platform.usage.model import ServiceType, Usage
from sandyard.platform.usage.sql import USAGES
from tests.simulation.machines import Life
from tests.simulation.platform import PRICES, SILENT_SEC, SKEW_SEC, PlatformWorld
from tests.support.clocks import ManualClock

_LATE_SEC = 2 * SKEW_SEC + 0.01
"""By so much two clocks may differ."""
_ROUNDED_SEC = 0.002


async def wrong_records(world: PlatformWorld) -> list[str]:
    """When all has been quiet for a while."""
    database = world.database()
    sandboxes = {subject_of(each): each for each in await find_entities(database, SANDBOXES)}
    usages = await find_entities(database, USAGES)
    events = await platform_events(database).state_events(list(sandboxes))
    lives = [life for node in world.nodes for life in node.host.lives]
    return [
        *_started_twice(lives),
        *_not_as_they_are(world, sandboxes),
        *_left_over(world, sandboxes),
        *_ended_unseen(events, lives),
        *_paid_wrongly(usages, lives),
    ]


def _started_twice(lives: Sequence[Life]) -> Iterator[str]:
    for run_id, count in Counter(each.run_id for each in lives).items():
        if count > 1:
            yield f"{run_id} was started {count} times"


def _not_as_they_are(world: PlatformWorld, sandboxes: Mapping[str, Sandbox]) -> Iterator[str]:
    """What runs is recorded, and what is recorded runs."""
    running = set()
    for node in world.nodes:
        for run_id, machine in node.host.machines.items():
            node.host.look(run_id)
            if machine.life is not None and machine.life.ended_at is None:
                running.add((run_id.id, int(run_id.attempt), node.name))
    recorded = set()
    for each in sandboxes.values():
        if each.status is Status.STARTING:
            yield f"{each.sandbox_id} is starting for ever"
        if each.status is Status.RUNNING:
            recorded.add((each.sandbox_id, each.attempt, each.node))
    for leaked in sorted(running - recorded):
        yield f"{leaked} runs, and nobody knows"
    for lost, attempt, name in sorted(recorded - running, key=str):
        life = _life_of(world, lost, attempt)
        ended_at = None if life is None else life.ended_at
        if ended_at is None or ended_at + 10 < max(node.clock.now() for node in world.nodes):
            yield f"{lost} runs as attempt {attempt} on {name}, but only by its row"


def _life_of(world: PlatformWorld, sandbox_id: str, attempt: int) -> Life | None:
    for node in world.nodes:
        for life in node.host.lives:
            if (life.run_id.id, life.run_id.attempt) == (sandbox_id, str(attempt)):
                return life
    return None


def _left_over(world: PlatformWorld, sandboxes: Mapping[str, Sandbox]) -> Iterator[str]:
    for node in world.nodes:
        for run_id in node.host.machines:
            sandbox = sandboxes.get(run_id.id)
            if sandbox is None or sandbox.status is Status.RECYCLED:
                yield f"{node.name} still has {run_id}, which nobody needs"


def _ended_unseen(events: Mapping[str, Any], lives: Sequence[Life]) -> Iterator[str]:
    """No end is recorded while the machine runs, but for a silent node's after its deadline, or for
    one that an admin gives up."""
    by_run = {(each.run_id.id, each.run_id.attempt): each for each in lives}
    for sandbox_id, of_sandbox in events.items():
        for step in steps_of(of_sandbox):
            life = by_run.get((sandbox_id, str(step.before.get("attempt"))))
            if life is None or not _is_end(step):
                continue
            at = step.event.at_ms / 1000
            if life.is_running(at - _LATE_SEC) and life.is_running(at) and not _may_be(step):
                yield (
                    f"{sandbox_id} was recorded as ended ({step.event.reason}) at {at:.3f}, "
                    f"but ran until {life.ended_at}"
                )


def _is_end(step: Step) -> bool:
    return step.before.get("status") in ACTIVE and step.after.get("status") not in ACTIVE


def _may_be(step: Step) -> bool:
    reason = step.event.reason or ""
    at = step.event.at_ms / 1000
    if "has been silent since" in reason:
        timeout_at = step.before.get("timeout_at")
        due = datetime.fromisoformat(timeout_at).timestamp() if timeout_at else at
        return at + _LATE_SEC >= due
    seen_at = datetime.fromisoformat(step.after["stopped_at"]).timestamp()
    return reason.startswith("ended by an admin") and at - seen_at >= SILENT_SEC - _LATE_SEC


def _paid_wrongly(usages: Sequence[Usage], lives: Sequence[Life]) -> Iterator[str]:
    """Every run is paid for once at most, from its start and to its end at the latest."""
    unpaid: dict[str | None, list[Life]] = defaultdict(list)
    for life in lives:
        unpaid[life.run_id.id].append(life)
    for usage in usages:
        if usage.service_type is not ServiceType.RUNTIME:
            continue
        began = usage.start_time.timestamp()
        of_sandbox = unpaid[usage.sandbox_id]
        found = [life for life in of_sandbox if abs(life.started_at - began) < _ROUNDED_SEC]
        if not found:
            yield f"{usage.usage_id} of {usage.sandbox_id} is for a run that never was"
            continue
        of_sandbox.remove(found[0])
        ended_at = found[0].ended_at
        if usage.end_time is None or ended_at is None:
            continue
        if usage.end_time.timestamp() > ended_at + _ROUNDED_SEC:
            yield f"{usage.usage_id} is paid for longer than it ran"


async def wrong_statements(world: PlatformWorld) -> list[str]:
    """The total of an account's month is the same however it is grouped, and what its rows add up
    to by other arithmetic."""
    database = world.database()
    clock = ManualClock(world.nodes[0].clock.now())
    store = SqlBillingStore(database, platform_transitions(database, clock))
    statements = Statements(store, clock=clock, prices=PRICES)
    usages, bills = await find_entities(database, USAGES), await find_entities(database, BILLS)
    problems: list[str] = []
    for owner in world.owners:
        runs = [
            each
            for each in usages
            if each.user_account_id == owner.account_id and each.service_type is ServiceType.RUNTIME
        ]
        own_bills = [each for each in bills if each.user_account_id == owner.account_id]
        told = [await statements.month_to_date(owner.account_id, by=by) for by in get_args(SumBy)]
        totals = {each.total for each in told}
        due = _stored(told[-1]) + _due(runs, own_bills, told[-1].until)
        billed = sum((each.amount for each in own_bills), Decimal(0))
        if len(totals) > 1 or {each.amount for each in totals} != {due}:
            problems.append(f"{owner.account_id} owes {due}, and is told {totals}")
        if {each.billed for each in told} != {billed}:
            problems.append(f"{owner.account_id} has bills of {billed}, and is told others")
    return problems


def _stored(told: MonthToDate) -> Decimal:
    """By what the product says, of grouped services."""
    kinds = {each.key: each.consumed.amount for each in told.sums}
    return kinds.get(ServiceType.STORAGE, Decimal(0))


def _due(runs: Sequence[Usage], bills: Sequence[Bill], now: datetime) -> Decimal:
    """In whole millionths."""
    charges = sum((each.amount for each in bills if each.usage_id is None), Decimal(0))
    return charges + Decimal(sum(_millionths(each, now) for each in runs)) / 10**6


def _millionths(run: Usage, now: datetime) -> int:
    until = min(each for each in (run.end_time or now, run.deadline_at) if each is not None)
    counted = max(1000, (until - run.start_time) // timedelta(milliseconds=1))
    return round(Fraction(run.rate) * counted * 10**6 / 3_600_000)
