"""Events: what happened to a subject, by whom and why, and deriving its state from them."""

from collections.abc import AsyncIterator, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, Literal, Protocol

from sandyard.kit.paging import Page

ActorKind = Literal["track", "account", "key", "operator", "job", "device", "system", "anonymous"]

State = Mapping[str, Any]
"""A subject's state in JSON values, by field."""

SETTLED_MS = 60_000
"""Nothing takes so long from the making of an event's id to its commit, and to an index."""


class Effect(StrEnum):
    """What an event's data says of the subject's state."""

    FULL = "full"
    """All of it."""
    PARTIAL = "partial"
    """The fields that changed."""
    REMOVED = "removed"
    """Nothing is left."""
    NONE = "none"
    """Nothing changed; the data only tells more."""


@dataclass(frozen=True, slots=True)
class Event:
    """One thing that happened, as the model decided it. It never holds a secret."""

    kind: str
    """Such as `lease.created`."""
    subject: str
    sequence: int | None
    """The subject's number after the change, which its next change is compared with; None if
    nothing of the subject changed."""
    actor: str
    at_ms: int
    effect: Effect
    data: State = field(default_factory=dict)
    reason: str | None = None
    account_id: str | None = None
    """Whose subject it is, where subjects belong to accounts."""


@dataclass(frozen=True, slots=True)
class LoggedEvent:
    """An event in a part's log. Ids sort by the time of writing, which is not before `at_ms`."""

    event_id: str
    part: str
    event: Event


@dataclass(frozen=True, slots=True)
class EventQuery:
    """Which events are listed; times are of writing, in epoch milliseconds, from the first on and
    before the second."""

    subject: str | None = None
    kind: str | None = None
    actor: str | None = None
    account_id: str | None = None
    from_ms: int | None = None
    to_ms: int | None = None


@dataclass(frozen=True, slots=True)
class Pruned:
    removed: int
    next_after: str | None
    """Where the next batch begins; None when there is no more."""


class EventListing(Protocol):
    async def page(self, query: EventQuery, *, limit: int, cursor: str | None) -> Page[LoggedEvent]:
        """The newest first; of one subject, the last change first."""
        ...


class EventLog(EventListing, Protocol):
    """A part's events, append-only. Every method raises UnavailableError when the engine is away.

    An event is in the log if and only if the change that it tells of was committed.
    """

    @property
    def part(self) -> str: ...

    async def state_events(self, subjects: Sequence[str]) -> Mapping[str, Sequence[Event]]:
        """Each subject's events from its last full state on, in order, as last committed."""
        ...

    def gone(self) -> AsyncIterator[Sequence[str]]:
        """The subjects of all events that are not there, or not any more, in batches. For checks of
        everything."""
        ...

    def between(self, *, from_ms: int, to_ms: int) -> AsyncIterator[Sequence[LoggedEvent]]:
        """All events that were written in that time, the oldest first, in batches. For exports: an
        event that is written later is not of a time that is a minute ago."""
        ...

    async def count(self, kind: str, *, from_ms: int, to_ms: int) -> int:
        """How many events of this kind were written in that time, as far as is to be seen."""
        ...

    async def read_after(
        self, position: str | None, *, limit: int
    ) -> tuple[Sequence[LoggedEvent], str | None]:
        """The next events of the log after this position, and the position behind them.

        Positions follow commits, not ids: whoever goes on from the last one misses no event of a
        transaction that began earlier and committed later. A subject's events come in order.
        """
        ...

    async def position_before(self, at_ms: int) -> str | None:
        """A position for `read_after` that no event which is written from then on is before. Some
        older ones may come after it too."""
        ...

    async def prune(self, *, before_ms: int, after: str | None) -> Pruned:
        """Remove what is not needed from a batch of events that are older than this. Not needed are
        all events of a subject that is gone, and those before a live subject's last full state."""
        ...


def actor(kind: ActorKind, name: str | None = None) -> str:
    """Who acts, as events tell it: `track:demo`, `job:expiry`, `operator`."""
    return kind if name is None else f"{kind}:{name}"


def fold(events: Iterable[Event]) -> State | None:
    """The state that the events lead to; None if there is none, or the subject was removed."""
    state: dict[str, Any] | None = None
    for event in events:
        match event.effect:
            case Effect.FULL:
                state = dict(event.data)
            case Effect.PARTIAL if state is not None:
                state |= event.data
            case Effect.REMOVED:
                state = None
    return state
