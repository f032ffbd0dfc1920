"""The Broker's answers, as the OpenAPI document describes them."""

from typing import Annotated, Literal, Self

from pydantic import Field, StrictInt

from sandyard.broker.pool.action_model import allowed_actions
from sandyard.broker.pool.model import Sandbox, StaleReason, Status
from sandyard.broker.pool.ports import PoolCounts
from sandyard.kit.http.schemas import (
    AS_JSON_HAS_IT,
    AttributesAnswer,
    Documented,
    PageAnswer,
    StrictBody,
    UnixSeconds,
    eg,
    example,
    inline,
)
from sandyard.kit.patterns import NO_NUL

PoolStatus = Annotated[Status, inline(Status)]
_IDENTITY = {
    "sandbox_id": "0c7b1f5e-8d3a-5e2b-9f64-1a2b3c4d5e6f",
    "name": "lab-042",
    "external_id": "ext-42",
}
STATE_COUNTS = {
    "available": 120,
    "reserved": 10,
    "allocated": 30,
    "pending_deletion": 2,
    "stale": 1,
    "held": 0,
    "deletion_failed": 0,
}


class LeaseAnswer(AttributesAnswer):
    sandbox_id: str = eg("0c7b1f5e-8d3a-5e2b-9f64-1a2b3c4d5e6f")
    name: str = eg("lab-042")
    external_id: str = eg("ext-42")
    allocated_at: int = eg(1_793_350_800, description="Unix seconds")
    expires_at: int = eg(
        1_793_365_200, description="Unix seconds; the lease is live before this time"
    )


class ExtensionBody(StrictBody):
    minutes: Annotated[StrictInt, Field(ge=1, le=999_999), AS_JSON_HAS_IT] = eg(
        30, description="Minutes to add"
    )


class ReasonBody(StrictBody):
    reason: str = eg(
        "no network", min_length=1, max_length=500, pattern=NO_NUL, description="Why, for people"
    )


class HoldBody(ReasonBody):
    model_config = example(reason="network drops, for Ana", until=1_793_437_200)

    until: UnixSeconds | None = Field(
        None,
        description="Unix seconds; then the hold ends by itself. Default: `HOLD_HOURS` from now",
    )


class MarkAnswer(AttributesAnswer):
    sandbox_id: str = eg(_IDENTITY["sandbox_id"], description="The sandbox that is released")
    status: Literal["pending_deletion", "deletion_failed", "deleted", "held"] = eg(
        "pending_deletion"
    )
    deletion_requested_at: int | None = eg(
        1_793_354_400, description="Unix seconds of the first request; null if it is held"
    )


class LeasedSandboxAnswer(AttributesAnswer):
    sandbox_id: str = eg("0c7b1f5e-8d3a-5e2b-9f64-1a2b3c4d5e6f")
    name: str = eg("lab-042")
    external_id: str = eg("ext-42")
    status: PoolStatus = eg("allocated")
    allocated_at: int = eg(1_793_350_800)
    expires_at: int | None = eg(1_793_365_200)


class PoolSandboxAnswer(Documented):
    """Every attribute of a row."""

    sandbox_id: str = eg("0c7b1f5e-8d3a-5e2b-9f64-1a2b3c4d5e6f")
    name: str = eg("lab-042")
    external_id: str = eg("ext-42")
    status: PoolStatus = eg("allocated")
    stale_reason: StaleReason | None
    lab_duration_hours: float = eg(4.0)
    allocated_to_track: str | None = eg("track-7")
    idempotency_key: str | None = eg("track-7")
    track_name: str | None = eg("intro-to-kubernetes")
    allocated_at: int = eg(1_793_350_800)
    expires_at: int | None = eg(1_793_365_200)
    deletion_requested_at: int | None
    deletion_retry_count: int = eg(0)
    next_attempt_at: int | None
    reserved_for: str | None = Field(
        description="The ticket or reservation that a reserved sandbox is kept for"
    )
    reservation_id: str | None = Field(description="The reservation that it is or was kept for")
    status_reason: str | None = Field(description="Why it is quarantined or held")
    held_until: int | None
    replaced_by: str | None = Field(description="The sandbox that its track got instead")
    last_synced: int | None = eg(1_793_350_200)
    created_at: int = eg(1_793_264_400)
    updated_at: int = eg(1_793_350_800)
    allowed_actions: list[str] = eg(
        ["extend", "replace", "release", "hold"],
        description="What an operator may do to it now, in the order in which to offer it",
    )

    @classmethod
    def of(cls, sandbox: Sandbox) -> Self:
        names = cls.model_fields.keys() - {"allowed_actions"}
        values = {name: getattr(sandbox, name) for name in names}
        return cls(**values, allowed_actions=allowed_actions(sandbox))


class PoolSandboxPage(PageAnswer):
    sandboxes: list[PoolSandboxAnswer]
    next_cursor: str | None


class PoolStatsAnswer(Documented):
    available: int = eg(120)
    reserved: int = eg(10, description="Free, and kept for a reservation or a ticket")
    allocated: int = eg(30)
    pending_deletion: int = eg(2)
    stale: int = eg(1)
    held: int = eg(0)
    deletion_failed: int = eg(0)
    total: int = eg(163)
    counted_at: int = eg(
        1_793_350_800, description="Unix seconds; on DynamoDB up to 15 seconds ago, otherwise now"
    )

    @classmethod
    def of(cls, counts: PoolCounts) -> Self:
        times = {"total": counts.total, "counted_at": counts.counted_at}
        return cls.model_validate({**counts.by_status, **times})


class PoolSyncAnswer(AttributesAnswer):
    listed: int = eg(153, description="Sandboxes in the provider's list")
    added: int = eg(3, description="New sandboxes, now available")
    unchanged: int = eg(149)
    made_stale: int = eg(1, description="Free sandboxes that the list lacks, now stale")
    restored: int = eg(0, description="Stale sandboxes that are listed again")
    renamed: int = eg(0, description="Free or stale sandboxes that the provider has renamed")
    held_back: int = eg(0, description="Would have become stale, but were too many at once")
    tombstones_listed: int = eg(0, description="Deleted sandboxes that the provider still lists")


class PoolCleanupAnswer(AttributesAnswer):
    deleted: int = eg(2)
    retried: int = eg(0, description="Failed, to be retried later")
    failed: int = eg(0, description="Failed permanently: `deletion_failed`")
    postponed: int = eg(
        0, description="Not attempted, because the provider's circuit breaker is open"
    )


class PoolExpiryAnswer(AttributesAnswer):
    expired: int = eg(1)
