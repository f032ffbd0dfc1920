"""What the events of a pool must never tell: about owners, leases and the order of the queue."""

from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from math import inf

from sandyard.broker.pool.model import FREE, Status
from sandyard.kit.changes.events import SETTLED_MS, Event, State, Step, steps_of
from sandyard.kit.changes.verification import Problem

CLOCKS_DIFFER_MS = 5000
"""What is told within this time may have happened in another order: clocks differ, indexes lag."""


@dataclass(frozen=True, slots=True)
class _Span:
    """From one event of a subject to another, by their times."""

    begin_ms: float
    end_ms: float
    subject: str


@dataclass(frozen=True, slots=True)
class _Wait:
    """A ticket waits; its holder has certainly not stopped asking until `asked_until_ms`."""

    ticket_id: str
    urgency: int
    name_prefix: str
    span: _Span
    asked_until_ms: float


@dataclass(slots=True)
class PoolRules:
    """Takes the events of one subject after the other, each from a full state on. `ticket_ttl_sec`
    is how long a ticket counts whose holder does not ask for it."""

    ticket_ttl_sec: float
    margin_ms: float = CLOCKS_DIFFER_MS
    late_ms: float = SETTLED_MS
    """A lease may be written so long after the time of its decision, which its event has."""
    _leases: dict[tuple[str, str], list[_Span]] = field(default_factory=lambda: defaultdict(list))
    _waits: list[_Wait] = field(default_factory=list)
    _served: list[tuple[float, _Wait]] = field(default_factory=list)
    _of_reservations: set[str] = field(default_factory=set)
    """The tickets that got a sandbox of a reservation, which not everyone may have."""

    def add(self, events: Sequence[Event]) -> list[str]:
        """What is wrong with this subject alone."""
        steps = list(steps_of(events))
        if steps and "track_id" in (steps[0].after or {}):
            self._add_ticket(steps)
            return []
        return list(self._add_sandbox(steps))

    def across(self) -> Iterator[Problem]:
        """What is wrong between subjects."""
        for (track, key), spans in self._leases.items():
            for one, other in pairwise(
                sorted(spans, key=lambda each: (each.begin_ms, each.end_ms))
            ):
                if not (self._may_precede(one, other) or self._may_precede(other, one)):
                    message = f"{track} had {other.subject} for the same key {key} before its end"
                    yield Problem(one.subject, message)
        yield from self._overtaken()

    def _may_precede(self, one: _Span, other: _Span) -> bool:
        return one.end_ms <= other.begin_ms + self.margin_ms + self.late_ms

    def _add_sandbox(self, steps: Sequence[Step]) -> Iterator[str]:
        has_been_leased = False
        for step in steps:
            before, after, event = step.before, step.after, step.event
            if after.get("reservation_id") and (holder := after.get("reserved_for")):
                self._of_reservations.add(holder)
            owners = [each.get("allocated_to_track") for each in (before, after)]
            if event.kind == "lease.created":
                if has_been_leased:
                    yield "was leased twice in its life"
                if before and before["status"] not in FREE:
                    yield f"was leased while it was {before['status']}"
                has_been_leased = True
            elif _is_allocated(before) and not _is_allocated(after) and not event.reason:
                yield f"lost {owners[0]}'s lease without a reason"
            elif before and after and owners[1] not in (None, owners[0]):
                yield f"passed from {owners[0] or 'nobody'} to {owners[1]} without a lease"
        self._add_leases(steps)

    def _add_leases(self, steps: Sequence[Step]) -> None:
        allocated = [each for each in steps if _is_allocated(each.after)]
        if not allocated:
            return
        first, owner = allocated[0], allocated[-1].after
        ends = (
            each.event.at_ms
            for each in steps
            if _is_allocated(each.before) and not _is_allocated(each.after)
        )
        span = _Span(first.event.at_ms, next(ends, inf), first.event.subject)
        self._leases[owner["allocated_to_track"], owner["idempotency_key"]].append(span)

    def _add_ticket(self, steps: Sequence[Step]) -> None:
        for step, following in pairwise([*steps, None]):
            if step is None or not step.after or step.after["sandbox_id"] is not None:
                continue
            end_ms = inf if following is None else following.event.at_ms
            ticket = step.after
            wait = _Wait(
                ticket["ticket_id"],
                ticket["urgency"],
                ticket["name_prefix"],
                _Span(step.event.at_ms, end_ms, ticket["ticket_id"]),
                (ticket["created_at"] + self.ticket_ttl_sec) * 1000,
            )
            self._waits.append(wait)
            if following is not None and following.event.kind == "ticket.ready":
                self._served.append((following.event.at_ms, wait))

    def _overtaken(self) -> Iterator[Problem]:
        """Of the same urgency, who came first is served first."""
        to_come = sorted(self._waits, key=lambda each: each.span.begin_ms, reverse=True)
        waiting: list[_Wait] = []
        for at_ms, served in sorted(self._served, key=lambda each: each[0]):
            while to_come and to_come[-1].span.begin_ms + self.margin_ms < at_ms:
                waiting.append(to_come.pop())
            waiting = [
                each
                for each in waiting
                if min(each.span.end_ms, each.asked_until_ms) > at_ms + self.margin_ms
            ]
            if served.ticket_id in self._of_reservations:
                continue
            for each in waiting:
                is_alike = each.urgency == served.urgency
                is_first = each.ticket_id < served.ticket_id
                if is_alike and is_first and served.name_prefix.startswith(each.name_prefix):
                    yield Problem(each.ticket_id, f"was passed by {served.ticket_id}")


def _is_allocated(sandbox: State) -> bool:
    return sandbox.get("status") == Status.ALLOCATED
