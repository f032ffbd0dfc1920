"""Delivery of events to sinks: filters and retries. No I/O."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from sandyard.kit.changes.events import LoggedEvent
from sandyard.kit.ids import first_event_id

ANY_KIND = "*"


def wants(kinds: Sequence[str], kind: str) -> bool:
    """Whether a filter accepts this kind of event; an empty one accepts all."""
    return not kinds or any(_matches(each, kind) for each in kinds)


def _matches(wanted: str, kind: str) -> bool:
    if wanted.endswith(ANY_KIND):
        return kind.startswith(wanted[:-1])
    return kind == wanted


@dataclass(frozen=True, slots=True)
class RetryPolicy:
    """A failed event is retried with growing delays, until the sink is given up."""

    first_sec: float = 1
    longest_sec: float = 300
    give_up_sec: float = 24 * 3600

    def delay(self, failures: int, chance: float) -> float:
        """Seconds until the next attempt; `chance` between 0 and 1 spreads retries."""
        longest: float = min(self.longest_sec, self.first_sec * 2 ** min(failures - 1, 30))
        return longest * (0.5 + chance / 2)

    def is_over(self, *, failing_since_ms: int, now_ms: int) -> bool:
        return now_ms - failing_since_ms >= self.give_up_sec * 1000


@dataclass(frozen=True, slots=True)
class StreamState:
    """A sink's position in the log of one part. Data, without events."""

    sink: str
    part: str
    since_ms: int
    """Events written before this time are not sent."""
    position: str | None = None
    """All events up to here are delivered."""
    failing_since_ms: int | None = None
    """The start of the current failures, while the position does not advance."""
    last_error: str | None = None

    def is_due(self, logged: LoggedEvent) -> bool:
        return logged.event_id >= first_event_id(self.since_ms)


@dataclass(frozen=True, slots=True)
class Attempt:
    """One attempt to deliver an event to a webhook."""

    attempt_id: str
    """Sorts by time."""
    webhook_id: str
    event_id: str
    kind: str
    subject: str
    at_ms: int
    duration_ms: int
    status: int | None = None
    """The receiver's status code; None without a response."""
    error: str | None = None


class Sink(Protocol):
    """Receives events; each is sent until it is accepted, so it may arrive twice."""

    @property
    def name(self) -> str:
        """Its id, the same in every process and after restarts."""
        ...

    @property
    def since_ms(self) -> int | None:
        """The start of its events; None: when the sink is first seen."""
        ...

    @property
    def kinds(self) -> Sequence[str]:
        """The filter; empty accepts all."""
        ...

    @property
    def parallel(self) -> int:
        """How many events of different subjects may be sent concurrently."""
        ...

    async def send(self, logged: LoggedEvent) -> None:
        """Return once the sink has the event. Raises SinkError if that is not certain."""
        ...

    async def give_up(self, reason: str) -> bool:
        """The sink has failed for too long. Returns whether sending stops."""
        ...

    async def close(self) -> None: ...
