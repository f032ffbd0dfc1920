"""The Broker's answers, as the OpenAPI document describes them."""

from typing import Literal, Self

from pydantic import BaseModel, Field

from sandyard.broker.model import Sandbox, StaleReason, Status


class LeaseAnswer(BaseModel):
    sandbox_id: str
    name: str
    external_id: str
    allocated_at: int = Field(description="Unix seconds")
    expires_at: int = Field(description="Unix seconds; the lease is live before this instant")


class MarkAnswer(BaseModel):
    sandbox_id: str
    status: Literal["pending_deletion", "deletion_failed", "deleted"]
    deletion_requested_at: int = Field(description="Unix seconds of the first request")


class SandboxAnswer(BaseModel):
    sandbox_id: str
    name: str
    external_id: str
    status: Status
    allocated_at: int
    expires_at: int | None

    @classmethod
    def of(cls, sandbox: Sandbox) -> Self:
        return cls(
            sandbox_id=sandbox.sandbox_id,
            name=sandbox.name,
            external_id=sandbox.external_id,
            status=sandbox.status,
            allocated_at=sandbox.allocated_at,
            expires_at=sandbox.expires_at,
        )


class AdminSandboxAnswer(BaseModel):
    """Every attribute of a row."""

    sandbox_id: str
    name: str
    external_id: str
    status: Status
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
    last_synced: int | None
    created_at: int
    updated_at: int

    @classmethod
    def of(cls, sandbox: Sandbox) -> Self:
        return cls.model_validate(sandbox, from_attributes=True)


class SandboxPage(BaseModel):
    sandboxes: list[AdminSandboxAnswer]
    next_cursor: str | None


class StatsAnswer(BaseModel):
    available: int
    allocated: int
    pending_deletion: int
    stale: int
    deletion_failed: int
    total: int


class SyncAnswer(BaseModel):
    listed: int = Field(description="Sandboxes in the provider's list")
    added: int = Field(description="New ones, now available")
    unchanged: int
    made_stale: int = Field(description="Free ones that the list lacks")
    restored: int = Field(description="Stale ones that are listed again")
    held_back: int = Field(description="Would have gone stale, but were too many at once")
    tombstones_listed: int = Field(description="Deleted ones that the provider still lists")


class CleanupAnswer(BaseModel):
    deleted: int
    retried: int = Field(description="Failed, to be tried again later")
    failed: int = Field(description="Failed for good: `deletion_failed`")
    postponed: int = Field(description="Not tried, because the provider is being left alone")


class ExpiryAnswer(BaseModel):
    expired: int
