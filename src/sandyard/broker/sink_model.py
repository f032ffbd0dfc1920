"""How events reach their sinks: which are wanted, when a failed one is tried again. No I/O."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from sandyard.kit.events import LoggedEvent
from sandyard.kit.ids import first_event_id

ANY_KIND = "*"


def wants(kinds: Sequence[str], kind: str) -> bool:
    """Whether a filter lets this kind of event through; an empty one lets all."""
    return not kinds or any(_matches(each, kind) for each in kinds)


def _matches(wanted: str, kind: str) -> bool:
    if wanted.endswith(ANY_KIND):
        return kind.startswith(wanted[:-1])
    return kind == wanted


@dataclass(frozen=True, slots=True)
class RetryPolicy:
    """An event that a sink did not take is sent again, later each time, until that is given up."""

    first_sec: float = 1
    longest_sec: float = 300
    give_up_sec: float = 24 * 3600

    def delay(self, failures: int, chance: float) -> float:
        """Seconds until the next try; `chance` between 0 and 1 spreads the tries of many."""
        longest: float = min(self.longest_sec, self.first_sec * 2 ** min(failures - 1, 30))
        return longest * (0.5 + chance / 2)

    def is_over(self, *, failing_since_ms: int, now_ms: int) -> bool:
        return now_ms - failing_since_ms >= self.give_up_sec * 1000


@dataclass(frozen=True, slots=True)
class StreamState:
    """How far a sink has come in the log of one part. Data, which no event tells of."""

    sink: str
    part: str
    since_ms: int
    """Events that were written before then are not sent."""
    position: str | None
    """Everything up to here has arrived."""
    failing_since_ms: int | None = None
    """Since when events have failed without the position moving on."""
    last_error: str | None = None

    def is_due(self, logged: LoggedEvent) -> bool:
        return logged.event_id >= first_event_id(self.since_ms)


@dataclass(frozen=True, slots=True)
class Attempt:
    """One try to deliver an event to a webhook."""

    attempt_id: str
    """Sorts by time."""
    webhook_id: str
    event_id: str
    kind: str
    subject: str
    at_ms: int
    duration_ms: int
    status: int | None
    """What the receiver answered; None if it did not."""
    error: str | None = None


class Sink(Protocol):
    """Takes events; each is sent until it was taken, so it may come twice."""

    @property
    def name(self) -> str:
        """Its id, the same in every process and after every restart."""
        ...

    @property
    def since_ms(self) -> int | None:
        """From when on it gets events; None: from when it is first seen."""
        ...

    @property
    def kinds(self) -> Sequence[str]:
        """The filter; empty for all."""
        ...

    @property
    def parallel(self) -> int:
        """How many events may be under way, of different subjects."""
        ...

    async def send(self, logged: LoggedEvent) -> None:
        """Return once the sink has the event; SinkError if that is not known."""
        ...

    async def give_up(self, reason: str) -> bool:
        """It has failed for too long. Whether no more is sent from now on."""
        ...

    async def close(self) -> None: ...
