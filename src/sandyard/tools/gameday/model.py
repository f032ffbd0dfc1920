"""The definition of a game day: a fault, the guarantees to check, and the alerts that must fire."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum


class Engine(StrEnum):
    SQLITE = "sqlite"
    POSTGRESQL = "postgresql"
    DYNAMODB = "dynamodb"


class Part(StrEnum):
    """The part that is under load."""

    BROKER = "broker"
    PLATFORM = "platform"
    PREVIEWS = "previews"
    TELEMETRY = "telemetry"


class Fault(StrEnum):
    PROVIDER_OUTAGE = "provider outage"
    POOL_EXHAUSTION = "pool exhaustion"
    DELETIONS_TIME_OUT = "deletions time out"
    SERVER_KILLED = "server killed"
    ENGINE_AWAY = "engine away"
    THROTTLED = "throttled"
    DISK_FULL = "disk full"
    CLOCK_SKEW = "clock skew"
    PREVIEW_PROVIDER_AWAY = "preview provider away"


class Promise(StrEnum):
    ONE_OWNER = "no sandbox has two tracks, no track has two sandboxes"
    EMPTY_MEANS_EMPTY = "409 is returned only if none was free"
    DURABLE = "every response still holds at the end"
    SAME_ANSWER = "a repeat returns the body of the first response"
    NO_LEAK = "every lease ends in a deletion, here and at the provider"
    OUTAGE_IS_TOLD = "an outage is 503 or no response, never another error"
    CONSISTENT = "`sandyard verify` finds nothing wrong"
    NO_SANDBOX_LOST = "every sandbox that was made is there, and nothing runs without one"
    BILLED_ONCE = "no run is billed twice, and none is open at the end"
    ONE_PREVIEW = "no project ever has two sandboxes at the provider"
    PREVIEW_BACK = "after the fault every project has its preview"
    EXACTLY_ONCE = "every reading is acknowledged in the end, and stored exactly once"


OF_BROKER = (
    *(Promise.ONE_OWNER, Promise.EMPTY_MEANS_EMPTY, Promise.DURABLE, Promise.SAME_ANSWER),
    *(Promise.NO_LEAK, Promise.OUTAGE_IS_TOLD, Promise.CONSISTENT),
)
EVERY_ENGINE = tuple(Engine)


@dataclass(frozen=True, slots=True)
class Scenario:
    name: str
    summary: str
    fault: Fault
    alerts: tuple[str, ...]
    engines: tuple[Engine, ...] = EVERY_ENGINE
    part: Part = Part.BROKER
    promises: tuple[Promise, ...] = OF_BROKER
    settings: Mapping[str, str] = field(default_factory=dict)
    pool: int | None = None
    """Sandboxes at the start; None: as many as the load can claim."""
    marks: bool = True
    """Whether tracks release their sandboxes during the load."""


@dataclass(frozen=True, slots=True)
class Load:
    """Tracks that start at a steady rate, whatever the responses are."""

    seconds: int
    tracks_per_second: int = 20

    def pool_for(self, scenario: Scenario, most_seconds: int) -> int:
        return scenario.pool or self.tracks_per_second * most_seconds + 50


class GameDayError(Exception):
    """What was missing, in a line for the person who called."""


SHARED = (Engine.POSTGRESQL, Engine.DYNAMODB)

SCENARIOS = (
    Scenario(
        name="provider-outage",
        summary="The provider returns 503 to every call: leasing continues.",
        fault=Fault.PROVIDER_OUTAGE,
        alerts=("SandyardProviderCircuitOpen",),
        settings={
            "CIRCUIT_BREAKER_THRESHOLD": "2",
            "CIRCUIT_BREAKER_TIMEOUT_SEC": "15",
            "SYNC_INTERVAL_SEC": "2",
        },
    ),
    Scenario(
        name="pool-exhaustion",
        summary="More tracks than sandboxes: 409 only when none is free, until there are more.",
        fault=Fault.POOL_EXHAUSTION,
        alerts=("SandyardPoolEmpty",),
        pool=30,
        marks=False,
    ),
    Scenario(
        name="cleanup-failures",
        summary="Deletions at the provider time out until they count as failed, and are retried.",
        fault=Fault.DELETIONS_TIME_OUT,
        alerts=("SandyardDeletionFailed",),
        settings={
            "CIRCUIT_BREAKER_THRESHOLD": "100000",
            "DELETION_RETRY_MAX_ATTEMPTS": "1",
            "CLEANUP_PARALLEL": "50",
        },
    ),
    Scenario(
        name="task-killed",
        summary="kill -9 in the middle of allocations; after some seconds the server is back.",
        fault=Fault.SERVER_KILLED,
        alerts=("SandyardDown",),
    ),
    Scenario(
        name="engine-away",
        summary="The engine's connections break and new ones are refused, for some seconds.",
        fault=Fault.ENGINE_AWAY,
        alerts=("SandyardErrorBudgetFast",),
        engines=SHARED,
    ),
    Scenario(
        name="throttling",
        summary="DynamoDB throttles nine calls in ten, as at a hot partition.",
        fault=Fault.THROTTLED,
        alerts=("SandyardErrorBudgetFast",),
        engines=(Engine.DYNAMODB,),
    ),
    Scenario(
        name="disk-full",
        summary="The disk with the databases fills up (a tmpfs, which needs root).",
        fault=Fault.DISK_FULL,
        alerts=("SandyardDiskFilling",),
        engines=(Engine.SQLITE,),
    ),
    Scenario(
        name="clock-skew",
        summary="The clock of one of two servers jumps a minute ahead, and later back.",
        fault=Fault.CLOCK_SKEW,
        alerts=("SandyardClockSkewed",),
        engines=SHARED,
    ),
    Scenario(
        name="sandboxes-killed",
        summary="kill -9 of the Platform's server in the middle of starts and stops.",
        fault=Fault.SERVER_KILLED,
        alerts=("SandyardDown",),
        engines=(Engine.SQLITE,),
        part=Part.PLATFORM,
        promises=(
            *(Promise.NO_SANDBOX_LOST, Promise.BILLED_ONCE),
            *(Promise.OUTAGE_IS_TOLD, Promise.CONSISTENT),
        ),
    ),
    Scenario(
        name="previews-provider",
        summary="The previews' provider (E2B's API) can't be reached while projects are synced.",
        fault=Fault.PREVIEW_PROVIDER_AWAY,
        alerts=("SandyardErrorBudgetFast",),
        engines=(Engine.SQLITE,),
        part=Part.PREVIEWS,
        promises=(
            *(Promise.ONE_PREVIEW, Promise.PREVIEW_BACK),
            *(Promise.OUTAGE_IS_TOLD, Promise.CONSISTENT),
        ),
        settings={"PREVIEW_ATTEMPT_SEC": "5"},
    ),
    Scenario(
        name="readings-engine-away",
        summary="The engine's connections break while devices send readings.",
        fault=Fault.ENGINE_AWAY,
        alerts=("SandyardErrorBudgetFast",),
        engines=SHARED,
        part=Part.TELEMETRY,
        promises=(Promise.EXACTLY_ONCE, Promise.OUTAGE_IS_TOLD, Promise.CONSISTENT),
    ),
)


def find_scenario(name: str) -> Scenario | None:
    return next((each for each in SCENARIOS if each.name == name), None)
