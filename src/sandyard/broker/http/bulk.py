"""Calls of operators that delete many sandboxes at once."""

from typing import Annotated, Literal

from fastapi import Depends, Query
from pydantic import BaseModel, Field

from sandyard.broker.bulk import MOST_AT_ONCE, BulkDeletion, BulkLimits, BulkReport
from sandyard.broker.bulk_model import STALE_GRACE_HOURS
from sandyard.broker.http.headers import PRINTABLE, TRACK_ID
from sandyard.broker.model import Status
from sandyard.kit.http import refuse_body
from sandyard.kit.routes import GuardedRoutes
from sandyard.kit.schemas import Cursor, example

_Hours = Annotated[
    float, Query(ge=0, le=100_000, allow_inf_nan=False, description="Unchanged for so long")
]
_BulkLimit = Annotated[int, Query(ge=1, le=MOST_AT_ONCE, description="How many at the most")]
_DryRun = Annotated[bool, Query(description="Only say which ones")]


class PoolBulkAnswer(BaseModel):
    model_config = example(
        dry_run=False,
        matched=2,
        deleted=2,
        skipped=0,
        sandbox_ids=[
            "0c7b1f5e-8d3a-5e2b-9f64-1a2b3c4d5e6f",
            "5d1f6f3a-52a7-5c0d-8b5e-6f7a8b9c0d1e",
        ],
        next_cursor=None,
    )

    dry_run: bool
    matched: int = Field(description="Sandboxes that match")
    deleted: int = Field(description="Sent to deletion: the job `cleanup` deletes them")
    skipped: int = Field(description="Left alone, because they changed meanwhile")
    sandbox_ids: list[str] = Field(description="Those sent to deletion, or that would be")
    next_cursor: str | None = Field(description="Pass it back as `cursor` to go on; null: done")

    @classmethod
    def of(cls, report: BulkReport) -> "PoolBulkAnswer":
        return cls.model_validate(report, from_attributes=True)


def add_bulk_routes(routes: GuardedRoutes, bulk: BulkDeletion) -> None:
    @routes.post("/bulk-delete", "Delete many sandboxes", dependencies=[Depends(refuse_body)])
    async def bulk_delete_pool_sandboxes(
        status: Annotated[
            Literal["allocated", "stale", "deletion_failed"],
            Query(description="Those of one status"),
        ],
        name: Annotated[str | None, Query(pattern=PRINTABLE, description="How it begins")] = None,
        track: Annotated[
            str | None, Query(pattern=TRACK_ID, description="Those leased to this track")
        ] = None,
        older_than_hours: _Hours = 0,
        dry_run: _DryRun = False,  # noqa: FBT002 - a query parameter
        limit: _BulkLimit = MOST_AT_ONCE,
        cursor: Cursor = None,
    ) -> PoolBulkAnswer:
        """Those that match become `pending_deletion`, each as if by `release` or
        `retry-deletion`. `older_than_hours` is the time since their last change."""
        report = await bulk.delete(
            status=Status(status),
            name_prefix=name or "",
            track=track,
            older_than_hours=older_than_hours,
            limits=BulkLimits(limit, cursor, dry_run),
        )
        return PoolBulkAnswer.of(report)

    @routes.post(
        "/auto-delete-stale",
        "Delete what the provider has long not listed",
        dependencies=[Depends(refuse_body)],
    )
    async def auto_delete_stale_pool_sandboxes(
        grace_period_hours: _Hours = STALE_GRACE_HOURS,
        dry_run: _DryRun = False,  # noqa: FBT002 - a query parameter
        limit: _BulkLimit = MOST_AT_ONCE,
        cursor: Cursor = None,
    ) -> PoolBulkAnswer:
        """Those that have been stale for so long because the provider does not list them become
        `pending_deletion`. Quarantined ones are not touched."""
        limits = BulkLimits(limit, cursor, dry_run)
        report = await bulk.delete_stale(grace_period_hours=grace_period_hours, limits=limits)
        return PoolBulkAnswer.of(report)
