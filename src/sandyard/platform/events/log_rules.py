"""What the events, usages and bills of a sandbox must never tell."""

from collections import defaultdict
from collections.abc import Iterator, Sequence
from datetime import date, datetime, timedelta
from decimal import Decimal
from itertools import pairwise

from sandyard.kit.changes.events import Event, State, Step, steps_of
from sandyard.platform.billing.model import Bill
from sandyard.platform.sandboxes.model import ACTIVE, Sandbox, Status
from sandyard.platform.usage.model import ServiceType, Usage

CLOCKS_DIFFER = timedelta(seconds=5)
"""Runs on two nodes, each by its own clock, may overlap by this much."""


def broken_runs(events: Sequence[Event]) -> list[str]:
    """Every start is a new attempt and has one end, and every end a reason."""
    return [each for step in steps_of(events) if step.before for each in _wrong_step(step)]


def _wrong_step(step: Step) -> Iterator[str]:
    before, after, kind = step.before, step.after, step.event.kind
    was_active, is_active = (each.get("status") in ACTIVE for each in (before, after))
    attempt = after.get("attempt")
    if kind == "sandbox.starting":
        if was_active:
            yield f"began attempt {attempt} before the end of attempt {before['attempt']}"
        if attempt != before["attempt"] + 1:
            yield f"began attempt {attempt} after attempt {before['attempt']}"
    elif after and attempt != before["attempt"]:
        yield f"came to attempt {attempt} without a start"
    elif is_active and not was_active:
        yield f"attempt {attempt} is {after['status']} after its end"
    if kind == "sandbox.started" and before["status"] != Status.STARTING:
        yield f"attempt {attempt} was started while it was {before['status']}"
    if was_active and not is_active and not (after.get("status_reason") and step.event.reason):
        yield f"attempt {before['attempt']} ended without a reason"


def broken_usages(
    sandbox: Sandbox, events: Sequence[Event], usages: Sequence[Usage], bills: Sequence[Bill]
) -> list[str]:
    """Of one sandbox: every usage fits its run, and every bill its usage."""
    by_type = defaultdict(list)
    for usage in sorted(usages, key=lambda each: (each.start_time, each.end_time is None)):
        by_type[usage.service_type].append(usage)
    runs = by_type[ServiceType.RUNTIME]
    return [
        *_wrong_open(sandbox, runs),
        *(each for of_type in by_type.values() for each in _overlapping(of_type)),
        *(each for usage in runs for each in _outside_its_run(usage, _runs_of(events))),
        *_wrong_bills(usages, bills),
    ]


def _wrong_open(sandbox: Sandbox, runs: Sequence[Usage]) -> Iterator[str]:
    open_ = [each.start_time for each in runs if each.end_time is None]
    due = [sandbox.started_at] if sandbox.status is Status.RUNNING else []
    if open_ != due:
        yield f"is {sandbox.status} and has {len(open_)} open usages, from other times than its run"


def _overlapping(usages: Sequence[Usage]) -> Iterator[str]:
    for one, other in pairwise(usages):
        if one.end_time is None or one.end_time > other.start_time + CLOCKS_DIFFER:
            yield f"{other.usage_id} begins before the end of {one.usage_id}"


def _runs_of(events: Sequence[Event]) -> dict[datetime, datetime]:
    """The ended runs, by their start."""
    found = {}
    for step in steps_of(events):
        before, after = step.before, step.after
        if before.get("status") == Status.RUNNING and after and after["status"] not in ACTIVE:
            found[_time(before, "started_at")] = _time(after, "stopped_at")
        elif after.get("status") == Status.RUNNING:
            found.pop(_time(after, "started_at"), None)  # another one, that began at once
    return found


def _time(state: State, name: str) -> datetime:
    return datetime.fromisoformat(state[name])


def _outside_its_run(usage: Usage, runs: dict[datetime, datetime]) -> Iterator[str]:
    ended_at = runs.get(usage.start_time)
    if usage.end_time is None:
        if ended_at is not None:
            yield f"{usage.usage_id} is open after the end of its run"
        return
    if ended_at is not None and usage.end_time > max(ended_at, usage.start_time):
        yield f"{usage.usage_id} lasts longer than its run"
    if usage.cost != usage.cost_until(usage.end_time):
        yield f"{usage.usage_id} costs {usage.cost:f} for another time"


def _wrong_bills(usages: Sequence[Usage], bills: Sequence[Bill]) -> Iterator[str]:
    of_usage = defaultdict(list)
    for bill in bills:
        of_usage[bill.usage_id].append(bill)
    for usage in usages:
        yield from _wrong_bills_of(usage, of_usage.pop(usage.usage_id, []))
    for usage_id, left in of_usage.items():
        if usage_id is not None:
            yield f"{left[0].billing_id} is for {usage_id}, which does not exist"


def _wrong_bills_of(usage: Usage, bills: Sequence[Bill]) -> Iterator[str]:
    days: dict[date, str] = {}
    for bill in bills:
        if bill.corrects is None and days.setdefault(bill.billing_date, bill.billing_id) != (
            bill.billing_id
        ):
            yield f"{bill.billing_date} of {usage.usage_id} is billed twice"
    for bill in bills:
        if bill.corrects is not None and days.get(bill.billing_date) != bill.corrects:
            yield f"{bill.billing_id} corrects a bill of another usage or day"
    billed = sum((each.amount for each in bills), Decimal(0))
    if usage.is_billed and billed != usage.cost:
        yield f"{usage.usage_id} costs {usage.cost:f}, and its bills are {billed:f}"
