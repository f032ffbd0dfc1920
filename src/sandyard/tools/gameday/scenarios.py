"""The game day scenarios."""

from sandyard.tools.gameday.model import Engine, Fault, Scenario

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
)


def find_scenario(name: str) -> Scenario | None:
    return next((each for each in SCENARIOS if each.name == name), None)
