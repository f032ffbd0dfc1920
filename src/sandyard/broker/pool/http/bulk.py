"""Calls of operators that change many sandboxes at once."""

from typing import Annotated, Literal

from fastapi import Body, Depends, Query
from pydantic import Field

from sandyard.broker.http import PRINTABLE, NameFilter, Operator, TrackFilter
from sandyard.broker.pool.action_model import STALE_GRACE_HOURS, BulkFilter
from sandyard.broker.pool.bulk import MOST_AT_ONCE, BulkChanges, BulkLimits
from sandyard.broker.pool.http.schemas import PoolStatus, ReasonBody
from sandyard.broker.pool.model import Status
from sandyard.kit.http.routes import GuardedRoutes
from sandyard.kit.http.schemas import AttributesAnswer, Cursor, StrictBody, UnixSeconds, eg, example
from sandyard.kit.http.security import refuse_body

_Hours = Annotated[
    float,
    Query(ge=0, le=100_000, allow_inf_nan=False, description="Unchanged for at least this long"),
]


def _limits(
    dry_run: Annotated[bool, Query(description="Only list the matches")] = False,  # noqa: FBT002 - a query parameter
    limit: Annotated[
        int, Query(ge=1, le=MOST_AT_ONCE, description="Maximum number of sandboxes")
    ] = MOST_AT_ONCE,
    cursor: Cursor = None,
) -> BulkLimits:
    return BulkLimits(limit, cursor, dry_run)


_Limits = Annotated[BulkLimits, Depends(_limits)]
_Name = Annotated[str, Field(pattern=PRINTABLE)]


class PoolBulkChangeAnswer(AttributesAnswer):
    dry_run: bool = eg(False)
    matched: int = eg(1, description="Number of matching sandboxes")
    changed: int = eg(1)
    skipped: int = eg(0, description="Skipped, because they changed in the meantime")
    sandbox_ids: list[str] = eg(
        ["0c7b1f5e-8d3a-5e2b-9f64-1a2b3c4d5e6f"],
        description="The sandboxes that were, or would be, changed",
    )
    not_found: list[str] = eg(
        [], description="Those of `names` that no sandbox has that could be changed"
    )
    next_cursor: str | None = Field(
        description="Pass it back as `cursor` to continue; null at the end"
    )


class PoolBulkAnswer(PoolBulkChangeAnswer):
    deleted: int = eg(
        1,
        validation_alias="changed",
        description="The same as `changed`: sent to deletion; the job `cleanup` deletes them",
    )


class BulkRestoreBody(StrictBody):
    names: list[_Name] | None = eg(
        ["lab-042", "lab-043"],
        None,
        min_length=1,
        max_length=100,
        description="Only sandboxes with exactly these names",
    )

    @property
    def wanted(self) -> frozenset[str] | None:
        return None if self.names is None else frozenset(self.names)


class BulkQuarantineBody(BulkRestoreBody, ReasonBody):
    model_config = example(reason="wrong image", names=["lab-042", "lab-043"])


class BulkHoldBody(BulkQuarantineBody):
    model_config = example(reason="for Ana", names=["lab-042"], until=1_793_437_200)

    until: UnixSeconds = Field(description="Unix seconds; then the holds end by themselves")


def add_bulk_routes(routes: GuardedRoutes, bulk: BulkChanges) -> None:
    @routes.post("/bulk-delete", "Delete many sandboxes", dependencies=[Depends(refuse_body)])
    async def bulk_delete_pool_sandboxes(
        limits: _Limits,
        operator: Operator,
        status: Annotated[
            Literal["allocated", "stale", "deletion_failed"],
            Query(description="Only this status"),
        ],
        name: NameFilter = None,
        track: TrackFilter = None,
        older_than_hours: _Hours = 0,
    ) -> PoolBulkAnswer:
        """Matching sandboxes become `pending_deletion`, as with `release` or `retry-deletion`.
        `older_than_hours` is the time since their last change."""
        report = await bulk.delete(
            status=Status(status),
            name_prefix=name or "",
            track=track,
            older_than_hours=older_than_hours,
            limits=limits,
            by=operator,
        )
        return PoolBulkAnswer.of(report)

    @routes.post(
        "/auto-delete-stale",
        "Delete sandboxes that the provider no longer lists",
        dependencies=[Depends(refuse_body)],
    )
    async def auto_delete_stale_pool_sandboxes(
        limits: _Limits,
        operator: Operator,
        grace_period_hours: _Hours = STALE_GRACE_HOURS,
    ) -> PoolBulkAnswer:
        """Sandboxes that have been stale for this long, because the provider does not list them,
        become `pending_deletion`. Quarantined ones are not touched."""
        report = await bulk.delete_stale(
            grace_period_hours=grace_period_hours, limits=limits, by=operator
        )
        return PoolBulkAnswer.of(report)

    _add_reasoned(routes, bulk)


def _add_reasoned(routes: GuardedRoutes, bulk: BulkChanges) -> None:
    @routes.post("/bulk-quarantine", "Quarantine many sandboxes")
    async def bulk_quarantine_pool_sandboxes(
        limits: _Limits,
        operator: Operator,
        body: BulkQuarantineBody,
        status: Annotated[
            Literal["available", "reserved"], Query(description="Only this status")
        ] = "available",
        name: NameFilter = None,
    ) -> PoolBulkChangeAnswer:
        """Matching sandboxes become `stale`, as with `quarantine`, with the reason."""
        report = await bulk.change(
            BulkFilter(Status(status), name or "", names=body.wanted),
            limits=limits,
            reason=body.reason,
            by=operator,
        )
        return PoolBulkChangeAnswer.of(report)

    @routes.post("/bulk-restore", "Restore many sandboxes")
    async def bulk_restore_pool_sandboxes(
        limits: _Limits,
        operator: Operator,
        body: Annotated[BulkRestoreBody, Body(default_factory=BulkRestoreBody)],
        status: Annotated[
            Literal["stale", "held"], Query(description="Only this status")
        ] = "stale",
        name: NameFilter = None,
    ) -> PoolBulkChangeAnswer:
        """Matching sandboxes become `available`, as with `restore`: those that are quarantined or
        held, and that no track has had."""
        wanted = BulkFilter(Status(status), name or "", names=body.wanted)
        return PoolBulkChangeAnswer.of(await bulk.restore(wanted, limits=limits, by=operator))

    @routes.post("/bulk-hold", "Hold many sandboxes")
    async def bulk_hold_pool_sandboxes(
        limits: _Limits,
        operator: Operator,
        body: BulkHoldBody,
        status: Annotated[PoolStatus, Query(description="Only this status")],
        name: NameFilter = None,
        track: TrackFilter = None,
    ) -> PoolBulkChangeAnswer:
        """Matching sandboxes become `held`, as with `hold`; their leases end."""
        report = await bulk.change(
            BulkFilter(Status(status), name or "", track, names=body.wanted),
            limits=limits,
            reason=body.reason,
            hold_until=body.until,
            by=operator,
        )
        return PoolBulkChangeAnswer.of(report)
