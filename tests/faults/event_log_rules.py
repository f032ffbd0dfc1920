"""What a pool's log must never tell: the rules of leases, reservations, tickets and replacements,
checked event by event."""

from collections import defaultdict
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import groupby
from math import inf
from typing import Any

from sandyard.broker.pool.model import FREE, Status
from sandyard.broker.reservations.model import Reservation
from sandyard.kit.changes.events import Effect, Event, LoggedEvent
from tests.faults.queue_observer import Sightings

State = dict[str, Any]
_SECOND_MS = 1000
"""Tickets tell in whole seconds when they were asked for."""
_TIME_DIGITS = 12
"""Of an event's id, which sorts by the time of writing."""


@dataclass(frozen=True, slots=True)
class Limits:
    longest_sec: float = inf
    """How long a lease may last that is asked for or extended."""
    ticket_ttl_sec: float = inf
    """How long a ticket counts whose holder does not ask for it."""


def broken_rules(
    log: Sequence[LoggedEvent], sightings: Sightings, limits: Limits | None = None
) -> list[str]:
    """Everything that cannot be, in sentences."""
    life = _Life.told_by(log)
    limits = limits or Limits()
    return [
        *_wrong_leases(life, limits),
        *_wrong_replacements(life),
        *_wrong_probes(life),
        *_wrong_tickets(life),
        *_overtaken(life, sightings, limits),
    ]


@dataclass(frozen=True, slots=True)
class _Step:
    """One event of a subject, with the subject's state before and after it."""

    event: Event
    before: State
    after: State
    written_ms: int
    """When the write began, which may be long after it was decided: `event.at_ms`."""


@dataclass(slots=True)
class _Life:
    """The log, told subject by subject."""

    steps: dict[str, list[_Step]] = field(default_factory=lambda: defaultdict(list))

    @classmethod
    def told_by(cls, log: Sequence[LoggedEvent]) -> "_Life":
        life = cls()
        numbered = [each for each in log if each.event.sequence is not None]
        for each in sorted(numbered, key=lambda e: (e.event.sequence, e.event_id)):
            life._add(each)
        return life

    def _add(self, logged: LoggedEvent) -> None:
        event = logged.event
        steps = self.steps[event.subject]
        before = steps[-1].after if steps else {}
        match event.effect:
            case Effect.FULL:
                after = dict(event.data)
            case Effect.PARTIAL:
                after = {**before, **event.data}
            case Effect.REMOVED:
                after = {}
            case Effect.NONE:
                after = before
        steps.append(_Step(event, before, after, int(logged.event_id[:_TIME_DIGITS], 16)))

    def of(self, *kinds: str) -> Iterator[_Step]:
        """The steps of these kinds, in the order in which they were written."""
        found = [
            each for steps in self.steps.values() for each in steps if each.event.kind in kinds
        ]
        return iter(sorted(found, key=lambda each: each.written_ms))

    def ticket(self, ticket_id: str | None) -> State | None:
        """The ticket as it was made."""
        made = self._first(ticket_id)
        return made if "ticket_id" in made else None

    def reservation(self, reservation_id: str | None) -> Reservation | None:
        made = self._first(reservation_id)
        return Reservation(**made) if "count" in made else None

    def _first(self, subject: str | None) -> State:
        steps = self.steps.get(subject or "")
        return steps[0].after if steps else {}


def _wrong_leases(life: _Life, limits: Limits) -> Iterator[str]:
    leased: set[str] = set()
    for step in life.of("lease.created"):
        subject = step.event.subject
        if subject in leased:
            yield f"leased twice in its life: {subject}"
        leased.add(subject)
        if step.before.get("status") not in FREE:
            yield f"leased though it was {step.before.get('status')}: {subject}"
        yield from _strangers(life, step)
    for step in life.of("lease.created", "lease.extended"):
        length = step.after["ends_at"] - step.after["allocated_at"]
        if length > limits.longest_sec:
            yield f"a lease past its bound: {step.event.subject} for {length} s"
    for step in life.of("lease.extended"):
        if step.before["ends_at"] * 1000 <= step.event.at_ms:
            yield f"extended after its end: {step.event.subject}"


def _strangers(life: _Life, step: _Step) -> Iterator[str]:
    """What was kept for a ticket goes to its track and key, and what was kept for a reservation
    to its tracks. By which client a track called is not told, so those of clients are left out."""
    track, holder = step.after["allocated_to_track"], step.before.get("reserved_for")
    what = f"{step.event.subject} to {track}"
    ticket, reservation = life.ticket(holder), life.reservation(step.before.get("reservation_id"))
    if ticket and (track, step.after["idempotency_key"]) != (ticket["track_id"], ticket["key"]):
        yield f"kept for a ticket and given to a stranger: {what}"
    if holder and not ticket and life.reservation(holder) is None:
        yield f"kept for nobody and given away: {what}"
    if reservation is None or reservation.client is not None:
        return
    if not reservation.admits(track, None):
        yield f"a reserved sandbox to a stranger: {what}"


_GOES_OVER = ("allocated_to_track", "idempotency_key", "allocated_at", "ends_at")


def _wrong_replacements(life: _Life) -> Iterator[str]:
    """A replacement is the same lease on another sandbox, with its beginning and its end."""
    leases = {step.event.subject: step.after for step in life.of("lease.created")}
    for step in life.of("lease.replaced"):
        old, new = step.before, leases.get(step.after["replaced_by"])
        what = f"{step.event.subject} by {step.after['replaced_by']}"
        if new is None:
            yield f"replaced by nothing: {what}"
        elif any(old[each] != new[each] for each in _GOES_OVER):
            yield f"replaced by another lease: {what}"


def _wrong_probes(life: _Life) -> Iterator[str]:
    """What has passed the probe at its claim was told to its track, and is not taken from it."""
    for step in life.of("lease.replaced", "sandbox.held"):
        by_probe = (step.event.reason or "").startswith("probe at claim")
        if by_probe and step.before.get("probed_at") is not None:
            yield f"taken away by a probe after it had passed: {step.event.subject}"


def unprobed(log: Sequence[LoggedEvent], sandbox_ids: Collection[str]) -> list[str]:
    """Those of the sandboxes that never passed a probe at their claim."""
    life = _Life.told_by(log)
    return [
        f"told though it was not probed: {each}"
        for each in sandbox_ids
        if not any(step.after.get("probed_at") for step in life.steps[each])
    ]


def _wrong_tickets(life: _Life) -> Iterator[str]:
    """A ticket that is served has got what was kept for it, once."""
    served: set[str] = set()
    leases = {step.event.subject: step.after for step in life.of("lease.created")}
    for step in life.of("ticket.served"):
        subject = step.event.subject
        if subject in served:
            yield f"served twice: {subject}"
        served.add(subject)
        lease = leases.get(step.before.get("sandbox_id") or "", {})
        owner = (lease.get("allocated_to_track"), lease.get("idempotency_key"))
        if owner != (step.before.get("track_id"), step.before.get("key")):
            yield f"served with nothing: {subject}"


@dataclass(frozen=True, slots=True)
class _Waiting:
    """A ticket as it was made, and since when it waits: again, if what was kept for it broke."""

    made: _Step
    seen_ms: float
    """Who began to look later than this has seen it wait."""
    sightings: Sightings
    ttl_sec: float

    def was_seen_by(self, decision: _Step) -> bool:
        """Whether it waited, and was asked for, when this was decided and written."""
        at_ms = decision.event.at_ms
        return self.seen_ms < at_ms and self.sightings.was_asked_for(
            self.made.event.subject,
            before_ms=at_ms,
            within_ms=decision.written_ms + _SECOND_MS,
            ttl_sec=self.ttl_sec,
        )

    def wants(self, row: State) -> bool:
        return str(row.get("name", "")).startswith(self.made.after["name_prefix"])


_BEGIN = ("ticket.created", "ticket.waiting")
_END = ("ticket.ready", "ticket.served", "ticket.dropped")


def _overtaken(life: _Life, sightings: Sightings, limits: Limits) -> Iterator[str]:
    """Of the same urgency, who came first gets a sandbox first; and all before newcomers.

    A decision tells when it was begun (`at_ms`), before the queue was looked at, and its write when
    that was made: whoever was seen to wait before the one, and waits after the other, was there.
    """
    waiting: dict[str, _Waiting] = {}
    steps = life.of(*_BEGIN, *_END, "lease.created")
    for _, group in groupby(steps, key=lambda step: step.written_ms):
        now = list(group)  # in one millisecond: whoever stops to wait in it was not passed
        for step in now:
            if step.event.kind in _END:
                waiting.pop(step.event.subject, None)
        for step in now:
            yield from _passed(life, step, waiting.values())
        for step in now:
            if step.event.kind in _BEGIN:
                subject = step.event.subject
                seen_ms = sightings.committed_ms(subject, step.written_ms)
                made = life.steps[subject][0]
                waiting[subject] = _Waiting(made, seen_ms, sightings, limits.ticket_ttl_sec)


def _passed(life: _Life, step: _Step, waiting: Collection[_Waiting]) -> Iterator[str]:
    if step.event.kind == "ticket.ready":
        yield from _passed_by(life, step, waiting)
    elif step.event.kind == "lease.created" and step.before.get("status") == Status.AVAILABLE:
        yield from _passed_by_newcomer(life, step, waiting)


def _passed_by(life: _Life, ready: _Step, waiting: Collection[_Waiting]) -> Iterator[str]:
    mine = life.steps[ready.event.subject][0]
    kept = _kept_for(life, ready)
    reservation = life.reservation(kept.get("reservation_id"))
    for each in waiting:
        ticket = each.made.after
        may_have = reservation is None or reservation.admits(ticket["track_id"], ticket["client"])
        came_first = each.made.event.subject < mine.event.subject
        was_seen = each.was_seen_by(ready)
        alike = ticket["urgency"] == mine.after["urgency"] and each.wants(kept)
        if alike and may_have and came_first and was_seen:
            yield f"overtaken: {each.made.event.subject} by {ready.event.subject}"


def _kept_for(life: _Life, ready: _Step) -> State:
    """The sandbox as it was kept for the ticket."""
    for step in life.steps.get(ready.after["sandbox_id"], ()):
        if step.after.get("reserved_for") == ready.event.subject:
            return step.after
    return {}


def _passed_by_newcomer(life: _Life, leased: _Step, waiting: Collection[_Waiting]) -> Iterator[str]:
    """What becomes free after a ticket was written is kept for it. What became free in the same
    moment may go to a newcomer before the job `queue` has run."""
    if leased.event.reason is not None:
        return  # a replacement, which is no new lease
    freed = _freed(life, leased)
    for each in waiting:
        if each.wants(leased.before) and each.was_seen_by(freed):
            yield f"overtaken: {each.made.event.subject} by a newcomer, {leased.event.subject}"


def _freed(life: _Life, leased: _Step) -> _Step:
    """How the sandbox became available, last before it was leased."""
    steps = [
        step
        for step in life.steps[leased.event.subject]
        if step.after.get("status") == Status.AVAILABLE != step.before.get("status")
    ]
    return max(steps, key=lambda step: step.event.at_ms)
