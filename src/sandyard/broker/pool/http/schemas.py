"""The Broker's answers, as the OpenAPI document describes them."""

from typing import Annotated, Literal, Self

from pydantic import BaseModel, Field, StrictInt

from sandyard.broker.pool.action_model import allowed_actions
from sandyard.broker.pool.model import Sandbox, StaleReason, Status
from sandyard.broker.pool.ports import PoolCounts
from sandyard.kit.http.schemas import (
    AS_JSON_HAS_IT,
    AttributesAnswer,
    PageAnswer,
    UnixSeconds,
    eg,
    example,
    inline,
    strict_example,
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
_LEASE = {"allocated_at": 1_793_350_800, "expires_at": 1_793_365_200}


class LeaseAnswer(AttributesAnswer):
    model_config = example(**_IDENTITY, **_LEASE)

    sandbox_id: str
    name: str
    external_id: str
    allocated_at: int = Field(description="Unix seconds")
    expires_at: int = Field(description="Unix seconds; the lease is live before this time")


class ExtensionBody(BaseModel):
    model_config = strict_example(minutes=30)

    minutes: Annotated[StrictInt, Field(ge=1, le=999_999), AS_JSON_HAS_IT] = Field(
        description="Minutes to add"
    )


class ReasonBody(BaseModel):
    model_config = strict_example(reason="no network")

    reason: str = Field(min_length=1, max_length=500, pattern=NO_NUL, description="Why, for people")


class HoldBody(ReasonBody):
    model_config = strict_example(reason="network drops, for Ana", until=1_793_437_200)

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
    model_config = example(**_IDENTITY, status="allocated", **_LEASE)

    sandbox_id: str
    name: str
    external_id: str
    status: PoolStatus
    allocated_at: int
    expires_at: int | None


class PoolSandboxAnswer(BaseModel):
    """Every attribute of a row."""

    model_config = example(
        **_IDENTITY,
        **_LEASE,
        status="allocated",
        stale_reason=None,
        lab_duration_hours=4.0,
        allocated_to_track="track-7",
        idempotency_key="track-7",
        track_name="intro-to-kubernetes",
        deletion_requested_at=None,
        deletion_retry_count=0,
        next_attempt_at=None,
        reserved_for=None,
        reservation_id=None,
        status_reason=None,
        held_until=None,
        replaced_by=None,
        last_synced=1_793_350_200,
        created_at=1_793_264_400,
        updated_at=1_793_350_800,
        allowed_actions=["extend", "replace", "release", "hold"],
    )

    sandbox_id: str
    name: str
    external_id: str
    status: PoolStatus
    stale_reason: StaleReason | None
    lab_duration_hours: float
    allocated_to_track: str | None
    idempotency_key: str | None
    track_name: str | None
    allocated_at: int
    expires_at: int | None
    deletion_requested_at: int | None
    deletion_retry_count: int
    next_attempt_at: int | None
    reserved_for: str | None = Field(
        description="The ticket or reservation that a reserved sandbox is kept for"
    )
    reservation_id: str | None = Field(description="The reservation that it is or was kept for")
    status_reason: str | None = Field(description="Why it is quarantined or held")
    held_until: int | None
    replaced_by: str | None = Field(description="The sandbox that its track got instead")
    last_synced: int | None
    created_at: int
    updated_at: int
    allowed_actions: list[str] = Field(
        description="What an operator may do to it now, in the order in which to offer it"
    )

    @classmethod
    def of(cls, sandbox: Sandbox) -> Self:
        names = cls.model_fields.keys() - {"allowed_actions"}
        values = {name: getattr(sandbox, name) for name in names}
        return cls(**values, allowed_actions=allowed_actions(sandbox))


class PoolSandboxPage(PageAnswer):
    sandboxes: list[PoolSandboxAnswer]
    next_cursor: str | None


class PoolStatsAnswer(BaseModel):
    model_config = example(**STATE_COUNTS, total=163, counted_at=1_793_350_800)

    available: int
    reserved: int = Field(description="Free, and kept for a reservation or a ticket")
    allocated: int
    pending_deletion: int
    stale: int
    held: int
    deletion_failed: int
    total: int
    counted_at: int = Field(
        description="Unix seconds; on DynamoDB up to 15 seconds ago, otherwise now"
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
