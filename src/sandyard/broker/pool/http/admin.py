"""Calls of operators: read the pool, act on one sandbox, run a job now."""

from collections.abc import Awaitable, Callable
from typing import Annotated, Protocol

from fastapi import APIRouter, Body, Depends, Query, Request

from sandyard.broker.clients.guards import AdminGuard
from sandyard.broker.http.headers import PRINTABLE
from sandyard.broker.http.parameters import NameFilter, SandboxId, TrackFilter, operator_routes
from sandyard.broker.pool.action_model import Action
from sandyard.broker.pool.bulk import BulkChanges
from sandyard.broker.pool.cleanup import CleanupReport
from sandyard.broker.pool.expiry import ExpiryReport
from sandyard.broker.pool.filter_model import SandboxFilter
from sandyard.broker.pool.http.bulk import add_bulk_routes
from sandyard.broker.pool.http.schemas import (
    HoldBody,
    PoolCleanupAnswer,
    PoolExpiryAnswer,
    PoolSandboxAnswer,
    PoolSandboxPage,
    PoolStatsAnswer,
    PoolStatus,
    PoolSyncAnswer,
    ReasonBody,
)
from sandyard.broker.pool.service import Broker
from sandyard.broker.pool.sync import SyncReport
from sandyard.kit.changes.events import EventLog
from sandyard.kit.http.events import EventAnswer, EventFilter, EventPage
from sandyard.kit.http.routes import GuardedRoutes
from sandyard.kit.http.schemas import Cursor, Limit
from sandyard.kit.paging import DEFAULT_LIMIT

_Force = Annotated[bool, Query(description="Also if most of the pool becomes stale")]


class RunJobs(Protocol):
    """Runs jobs to their end, each after a run in progress anywhere."""

    async def sync(self, *, force: bool) -> SyncReport: ...

    async def cleanup(self) -> CleanupReport: ...

    async def expire(self) -> ExpiryReport: ...


def create_admin_router(
    broker: Broker,
    jobs: RunJobs,
    bulk: BulkChanges,
    log: EventLog,
    guard: AdminGuard,
    *,
    prefix: str,
) -> APIRouter:
    routes = operator_routes(f"{prefix}/admin", guard.require)

    @routes.get("/sandboxes", "List sandboxes")
    async def list_pool_sandboxes(
        status: Annotated[PoolStatus | None, Query(description="Only this status")] = None,
        track: TrackFilter = None,
        name: NameFilter = None,
        q: Annotated[
            str | None,
            Query(
                pattern=PRINTABLE,
                description="Prefix of the track, name or id; on DynamoDB a whole track or id, "
                "or a prefix of the name",
            ),
        ] = None,
        limit: Limit = DEFAULT_LIMIT,
        cursor: Cursor = None,
    ) -> PoolSandboxPage:
        """Pass `next_cursor` back as `cursor` until it is null. Filters combine."""
        where = SandboxFilter(status, track, name or "", q or "")
        page = await broker.list_sandboxes(where, limit=limit, cursor=cursor)
        return PoolSandboxPage.of(page, PoolSandboxAnswer.of)

    @routes.get("/sandboxes/{sandbox_id}", "Get a sandbox", 404)
    async def get_pool_sandbox(sandbox_id: SandboxId) -> PoolSandboxAnswer:
        """All attributes of the sandbox."""
        return PoolSandboxAnswer.of(await broker.inspect_sandbox(sandbox_id))

    @routes.get("/stats", "Get the counts by state")
    async def get_pool_stats() -> PoolStatsAnswer:
        """The number of sandboxes in each state."""
        return PoolStatsAnswer.of(await broker.stats())

    @routes.post("/sync", "Sync with the provider now", 409)
    async def sync_pool(force: _Force = False) -> PoolSyncAnswer:  # noqa: FBT002
        """Waits for a run in progress. `force` allows most of the pool to become stale."""
        return PoolSyncAnswer.of(await jobs.sync(force=force))

    @routes.post("/cleanup", "Delete released sandboxes now", 409)
    async def clean_up_pool() -> PoolCleanupAnswer:
        """Waits for a run in progress."""
        return PoolCleanupAnswer.of(await jobs.cleanup())

    @routes.post("/expire", "Reclaim expired leases now")
    async def expire_leases() -> PoolExpiryAnswer:
        """Waits for a run in progress."""
        return PoolExpiryAnswer.of(await jobs.expire())

    _add_history(routes, broker, log)
    add_bulk_routes(routes, bulk)
    for action, (name, summary, text) in _ACTIONS.items():
        path = f"/sandboxes/{{sandbox_id}}/{action}"
        add = routes.post(path, summary, 404, 409, name=name, description=text)
        add(_act(broker, action))
    _add_reasoned(routes, broker)
    return routes.router


def _add_reasoned(routes: GuardedRoutes, broker: Broker) -> None:
    @routes.post("/sandboxes/{sandbox_id}/quarantine", "Quarantine a sandbox", 404, 409)
    async def quarantine_pool_sandbox(
        request: Request,
        sandbox_id: SandboxId,
        body: Annotated[ReasonBody | None, Body(examples=[{"reason": "no network"}])] = None,
    ) -> PoolSandboxAnswer:
        """available or reserved → stale: out of the pool until it is restored. The reason is shown
        with the sandbox."""
        request.state.log = {"sandbox_id": sandbox_id, "action": "quarantine"}
        row = await broker.act(
            Action.QUARANTINE, sandbox_id=sandbox_id, reason=body.reason if body else None
        )
        return PoolSandboxAnswer.of(row)

    @routes.post("/sandboxes/{sandbox_id}/hold", "Hold a sandbox", 404)
    async def hold_pool_sandbox(
        request: Request, sandbox_id: SandboxId, body: Annotated[HoldBody, Body()]
    ) -> PoolSandboxAnswer:
        """any → held: neither leased nor deleted until it is restored or released; its lease ends.
        After `until`, an event reports the hold as overdue. Repeating the call changes `until`."""
        request.state.log = {"sandbox_id": sandbox_id, "action": "hold"}
        row = await broker.hold(sandbox_id=sandbox_id, reason=body.reason, until=body.until)
        return PoolSandboxAnswer.of(row)


def _add_history(routes: GuardedRoutes, broker: Broker, log: EventLog) -> None:
    @routes.get("/sandboxes/{sandbox_id}/history", "Get a sandbox's history", 404)
    async def get_pool_sandbox_history(
        sandbox_id: SandboxId, limit: Limit = DEFAULT_LIMIT, cursor: Cursor = None
    ) -> EventPage:
        """Its events, newest first; also of a deleted sandbox."""
        page = await broker.get_history(sandbox_id, limit=limit, cursor=cursor)
        return EventPage.of(page, EventAnswer.of)

    @routes.get("/events", "List events")
    async def list_pool_events(wanted: Annotated[EventFilter, Depends()]) -> EventPage:
        """The pool's events, newest first."""
        return await wanted.page(log)


_ACTIONS = {
    Action.RESTORE: (
        "restore_pool_sandbox",
        "Restore a sandbox",
        "stale or held → available: back into the pool, unless a track has had it",
    ),
    Action.RELEASE: (
        "release_pool_sandbox",
        "Release a sandbox",
        "allocated, stale or held → pending_deletion; a lease ends",
    ),
    Action.RETRY_DELETION: (
        "retry_pool_sandbox_deletion",
        "Retry the deletion of a sandbox",
        "deletion_failed → pending_deletion: tried again from the start",
    ),
}
"""For each action without a body: its operation id, summary and description."""


def _act(broker: Broker, action: Action) -> Callable[..., Awaitable[PoolSandboxAnswer]]:
    async def act(request: Request, sandbox_id: SandboxId) -> PoolSandboxAnswer:
        request.state.log = {"sandbox_id": sandbox_id, "action": str(action)}
        return PoolSandboxAnswer.of(await broker.act(action, sandbox_id=sandbox_id))

    return act
