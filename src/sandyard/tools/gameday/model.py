"""The definition of a game day: a fault, the guarantees to check, and the alerts that must fire."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum


class Engine(StrEnum):
    SQLITE = "sqlite"
    POSTGRESQL = "postgresql"
    DYNAMODB = "dynamodb"


class Fault(StrEnum):
    PROVIDER_OUTAGE = "provider outage"
    POOL_EXHAUSTION = "pool exhaustion"
    DELETIONS_TIME_OUT = "deletions time out"
    SERVER_KILLED = "server killed"
    ENGINE_AWAY = "engine away"
    THROTTLED = "throttled"
    DISK_FULL = "disk full"
    CLOCK_SKEW = "clock skew"


class Promise(StrEnum):
    ONE_OWNER = "no sandbox has two tracks, no track has two sandboxes"
    EMPTY_MEANS_EMPTY = "409 is returned only if none was free"
    DURABLE = "every response still holds at the end"
    SAME_ANSWER = "a repeat returns the body of the first response"
    NO_LEAK = "every lease ends in a deletion, here and at the provider"
    OUTAGE_IS_TOLD = "an outage is 503 or no response, never another error"
    CONSISTENT = "`sandyard verify` finds nothing wrong"


EVERY_ENGINE = tuple(Engine)


@dataclass(frozen=True, slots=True)
class Scenario:
    name: str
    summary: str
    fault: Fault
    alerts: tuple[str, ...]
    engines: tuple[Engine, ...] = EVERY_ENGINE
    promises: tuple[Promise, ...] = tuple(Promise)
    settings: Mapping[str, str] = field(default_factory=dict)
    pool: int | None = None
    """Sandboxes at the start; None: as many as the load can claim."""
    marks: bool = True
    """Whether tracks release their sandboxes during the load."""

    @property
    def is_skewed(self) -> bool:
        """Whether one server has a skewed clock."""
        return self.fault is Fault.CLOCK_SKEW


@dataclass(frozen=True, slots=True)
class Load:
    """Tracks that start at a steady rate, whatever the responses are."""

    seconds: int
    tracks_per_second: int = 20

    def pool_for(self, scenario: Scenario, most_seconds: int) -> int:
        return scenario.pool or self.tracks_per_second * most_seconds + 50
