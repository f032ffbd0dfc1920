"""Events: what happened to a subject, by whom and why, its state derived from them, and pruning."""

from collections.abc import AsyncIterator, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from enum import StrEnum
from typing import Any, Literal, Protocol

import orjson

from sandyard.kit.clock import Clock
from sandyard.kit.paging import Page

ActorKind = Literal["track", "account", "key", "operator", "job", "device", "system", "anonymous"]
State = Mapping[str, Any]
"""A subject's state in JSON values, by field."""
SETTLED_MS = 60_000
"""An upper bound on the time from generating an event's id to its commit and its appearance in an
index."""


class Effect(StrEnum):
    """What an event's data says of the subject's state."""

    FULL = "full"
    """The whole state."""
    PARTIAL = "partial"
    """The fields that changed."""
    REMOVED = "removed"
    """The subject was removed."""
    NONE = "none"
    """Nothing changed; the data is only informative."""


@dataclass(frozen=True, slots=True)
class Event:
    """One thing that happened, as decided by the model. It never contains a secret."""

    kind: str
    """Such as `lease.created`."""
    subject: str
    sequence: int | None
    """The subject's sequence after the change, which its next change is compared with; None if the
    subject did not change."""
    actor: str
    at_ms: int
    effect: Effect
    data: State = field(default_factory=dict)
    reason: str | None = None
    account_id: str | None = None
    """The account that owns the subject, if subjects belong to accounts."""

    @classmethod
    def of_stored(cls, stored: Mapping[str, Any]) -> "Event":
        """The event of a row or an item, which has its data as JSON text."""
        return cls(
            kind=stored["kind"],
            subject=stored["subject"],
            sequence=stored["sequence"],
            actor=stored["actor"],
            at_ms=stored["at_ms"],
            effect=Effect(stored["effect"]),
            data=orjson.loads(stored["data"]),
            reason=stored.get("reason"),
            account_id=stored.get("account_id"),
        )


@dataclass(frozen=True, slots=True)
class LoggedEvent:
    """An event in a part's log. Ids sort by time of writing, which is never before `at_ms`."""

    event_id: str
    part: str
    event: Event


@dataclass(frozen=True, slots=True)
class EventQuery:
    """Filters of an event listing; times are times of writing in epoch milliseconds, start
    inclusive, end exclusive."""

    subject: str | None = None
    kind: str | None = None
    """In full, or the beginning of it and `*`."""
    actor: str | None = None
    account_id: str | None = None
    from_ms: int | None = None
    to_ms: int | None = None


@dataclass(frozen=True, slots=True)
class Pruned:
    removed: int
    next_after: str | None
    """Where the next batch starts; None at the end."""


class EventListing(Protocol):
    async def page(self, query: EventQuery, *, limit: int, cursor: str | None) -> Page[LoggedEvent]:
        """Newest first; for one subject, the last change first."""


class EventLog(EventListing, Protocol):
    """A part's events, append-only. Every method raises UnavailableError when the engine is down.

    An event is in the log if and only if the change it describes was committed.
    """

    @property
    def part(self) -> str: ...

    async def state_events(self, subjects: Sequence[str]) -> Mapping[str, Sequence[Event]]:
        """Each subject's events since its last full state, in order, as last committed."""

    def gone(self) -> AsyncIterator[Sequence[str]]:
        """All subjects that have events but do not exist (any more), in batches. For full
        checks."""

    def between(self, *, from_ms: int, to_ms: int) -> AsyncIterator[Sequence[LoggedEvent]]:
        """All events written in that period, oldest first, in batches. For exports: no event is
        added to a period that ended a minute ago."""

    async def count(self, kind: str, *, from_ms: int, to_ms: int) -> int:
        """The number of events of this kind written in that period, as far as visible."""

    async def read_after(
        self, position: str | None, *, limit: int
    ) -> tuple[Sequence[LoggedEvent], str | None]:
        """The next events after this position, and the position after them.

        Positions follow commits, not ids: a reader that continues from the last position misses no
        event of a transaction that began earlier and committed later. A subject's events come in
        order.
        """

    async def position_before(self, at_ms: int) -> str | None:
        """A position for `read_after` that precedes every event written from then on. Some older
        events may follow it too."""

    def everything(self) -> AsyncIterator[Sequence[LoggedEvent]]:
        """All events in batches, each subject's in order. For moves."""

    async def restore(self, events: Sequence[LoggedEvent]) -> None:
        """Add events of another log, which keep their ids; those that are there stay as they are.
        For moves: call `finish_restore` after the last ones."""

    async def finish_restore(self) -> None:
        """Bring restored events into the order of their ids, except that a subject's events stay in
        the order of its changes."""

    async def first_id_after(self, position: str) -> str | None:
        """No event after this position has a smaller id; None if no event follows it. For moves:
        while nothing is written."""

    async def position_at(self, event_id: str | None) -> str | None:
        """A position that precedes all events with this id or a greater one; without an id, the end
        of the log. For moves, likewise."""

    async def prune(self, *, before_ms: int, after: str | None) -> Pruned:
        """Remove unneeded events from a batch of events older than this. Unneeded are all events of
        a removed subject, and those before a live subject's last full state."""


def actor(kind: ActorKind, name: str | None = None) -> str:
    """The actor of an event: `track:demo`, `job:expiry`, `operator`."""
    return kind if name is None else f"{kind}:{name}"


def fold(events: Iterable[Event]) -> State | None:
    """The state that the events produce; None if there is none, or the subject was removed."""
    state: State | None = None
    for event in events:
        state = state_after(state, event)
    return state


def state_after(state: State | None, event: Event) -> State | None:
    match event.effect:
        case Effect.FULL:
            return dict(event.data)
        case Effect.PARTIAL if state is not None:
            return {**state, **event.data}
        case Effect.REMOVED:
            return None
    return state


@dataclass(frozen=True, slots=True)
class Step:
    """One event of a subject, with the subject's state before and after it; empty if there was
    none."""

    event: Event
    before: State
    after: State


def steps_of(events: Iterable[Event]) -> Iterator[Step]:
    """A subject's life, from its first full state on."""
    before: State | None = None
    for event in events:
        after = state_after(before, event)
        yield Step(event, before or {}, after or {})
        before = after


@dataclass(slots=True)
class PruneReport:
    events_removed: int = 0


async def prune_events(log: EventLog, *, clock: Clock, retention: timedelta) -> PruneReport:
    """Removes in batches, so that writers never wait long."""
    report = PruneReport()
    before_ms = int((clock.now() - retention.total_seconds()) * 1000)
    after: str | None = None
    while True:
        pruned = await log.prune(before_ms=before_ms, after=after)
        report.events_removed += pruned.removed
        after = pruned.next_after
        if after is None:
            return report
