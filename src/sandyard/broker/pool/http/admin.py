"""Calls of operators: read the pool, act on one sandbox, run a job now."""

from collections.abc import Awaitable, Callable, Mapping
from typing import Annotated, Any

from fastapi import APIRouter, Body, Depends, Query, Request

from sandyard.broker import http
from sandyard.broker.clients.guards import AdminGuard
from sandyard.broker.pool.action_model import Action, leased_track
from sandyard.broker.pool.bulk import BulkChanges
from sandyard.broker.pool.http import schemas
from sandyard.broker.pool.http.bulk import add_bulk_routes
from sandyard.broker.pool.lease_model import Extension, Replacement
from sandyard.broker.pool.leases import Leases
from sandyard.broker.pool.ports import PoolStore, SandboxFilter, Sort
from sandyard.broker.pool.service import Broker
from sandyard.broker.pool.track_events import TrackEvents
from sandyard.broker.provider.ports import Provider
from sandyard.kit.http.events import EventAnswer, EventFilter, EventPage
from sandyard.kit.http.routes import GuardedRoutes
from sandyard.kit.http.schemas import Paging, inline
from sandyard.kit.http.security import secured_by
from sandyard.kit.jobs import Job, JobRunner

_OfTrack = Annotated[
    str | None,
    Query(
        pattern=http.TRACK_ID,
        description="All that happened to this track's sandboxes and tickets, since they are its "
        "own, whoever did it; also after their deletion",
    ),
]
_Force = Annotated[bool, Query(description="Also if most of the pool becomes stale")]


def create_admin_router(
    broker: Broker,
    leases: Leases,
    runner: JobRunner,
    jobs: Mapping[str, Job[Any]],
    bulk: BulkChanges,
    store: PoolStore,
    provider: Provider,
    guard: AdminGuard,
    *,
    prefix: str,
) -> APIRouter:
    routes = http.operator_routes(f"{prefix}/admin", guard.require)

    @routes.get("/sandboxes", "List sandboxes")
    async def list_pool_sandboxes(
        paging: Paging,
        status: Annotated[schemas.PoolStatus | None, Query(description="Only this status")] = None,
        track: http.TrackFilter = None,
        name: http.NameFilter = None,
        q: Annotated[
            str | None,
            Query(
                pattern=http.PRINTABLE,
                description="Prefix of the track, name or id; on DynamoDB a whole track or id, "
                "or a prefix of the name",
            ),
        ] = None,
        sort: Annotated[
            Annotated[Sort, inline(Sort)],
            Query(
                description="By name, or leased ones first by the end of their lease; `-` for the "
                "opposite order. Not for `q`; on DynamoDB each page is sorted on its own"
            ),
        ] = Sort.NAME,
    ) -> schemas.PoolSandboxPage:
        """Pass `next_cursor` back as `cursor` until it is null. Filters combine."""
        where = SandboxFilter(status, track, name or "", q or "", sort)
        page = await store.page(where, **paging)
        return schemas.PoolSandboxPage.of(page, schemas.PoolSandboxAnswer.of)

    @routes.get("/sandboxes/{sandbox_id}", "Get a sandbox", 404)
    async def get_pool_sandbox(sandbox_id: http.SandboxId) -> schemas.PoolSandboxAnswer:
        """All attributes of the sandbox."""
        return schemas.PoolSandboxAnswer.of(await broker.inspect_sandbox(sandbox_id))

    @routes.get("/stats", "Get the counts by state")
    async def get_pool_stats() -> schemas.PoolStatsAnswer:
        """The number of sandboxes in each state."""
        return schemas.PoolStatsAnswer.of(await broker.stats())

    @routes.post("/sync", "Sync with the provider now", 409)
    async def sync_pool(force: _Force = False) -> schemas.PoolSyncAnswer:  # noqa: FBT002
        """Waits for a run in progress. `force` allows most of the pool to become stale."""
        job = jobs["sync"]
        return schemas.PoolSyncAnswer.of(await runner.run(job.forced() if force else job))

    @routes.post("/cleanup", "Delete released sandboxes now", 409)
    async def clean_up_pool() -> schemas.PoolCleanupAnswer:
        """Waits for a run in progress. 503 if nothing could be deleted because the provider is
        away."""
        report = await runner.run(jobs["cleanup"])
        if not report.deleted and report.retried + report.failed + report.postponed:
            await provider.list_sandboxes()
        return schemas.PoolCleanupAnswer.of(report)

    @routes.post("/expire", "Reclaim expired leases now")
    async def expire_leases() -> schemas.PoolExpiryAnswer:
        """Waits for a run in progress."""
        return schemas.PoolExpiryAnswer.of(await runner.run(jobs["expiry"]))

    _add_history(routes, broker, store)
    add_bulk_routes(routes, bulk)
    for action, (name, summary, text) in _ACTIONS.items():
        path = f"/sandboxes/{{sandbox_id}}/{action}"
        add = routes.post(path, summary, 404, 409, name=name, description=text)
        add(_act(broker, action))
    _add_reasoned(routes, broker)
    _add_of_lease(routes, broker, leases)
    return routes.router


def _add_reasoned(routes: GuardedRoutes, broker: Broker) -> None:
    @routes.post("/sandboxes/{sandbox_id}/quarantine", "Quarantine a sandbox", 404, 409)
    async def quarantine_pool_sandbox(
        request: Request,
        sandbox_id: http.SandboxId,
        operator: http.Operator,
        body: Annotated[
            schemas.ReasonBody | None, Body(examples=[{"reason": "no network"}])
        ] = None,
    ) -> schemas.PoolSandboxAnswer:
        """available or reserved → stale: out of the pool until it is restored. The reason is shown
        with the sandbox."""
        request.state.log = {"sandbox_id": sandbox_id, "action": "quarantine"}
        reason = body.reason if body else None
        row = await broker.act(Action.QUARANTINE, sandbox_id=sandbox_id, reason=reason, by=operator)
        return schemas.PoolSandboxAnswer.of(row)

    @routes.post("/sandboxes/{sandbox_id}/hold", "Hold a sandbox", 404)
    async def hold_pool_sandbox(
        request: Request,
        sandbox_id: http.SandboxId,
        body: schemas.HoldBody,
        operator: http.Operator,
    ) -> schemas.PoolSandboxAnswer:
        """any → held: neither leased nor deleted until it is restored or released; its lease ends.
        At `until` it ends by itself: a sandbox that a track has had is deleted, one that none has
        had is restored. Repeating the call changes `until`."""
        request.state.log = {"sandbox_id": sandbox_id, "action": "hold"}
        row = await broker.hold(
            sandbox_id=sandbox_id, reason=body.reason, until=body.until, by=operator
        )
        return schemas.PoolSandboxAnswer.of(row)


def _add_of_lease(routes: GuardedRoutes, broker: Broker, leases: Leases) -> None:
    @routes.post(
        "/sandboxes/{sandbox_id}/extend",
        "Extend a track's lease",
        404,
        409,
        described=secured_by(http.ADMIN_TOKEN, parameters=[http.RETRY_KEY]),
    )
    async def extend_pool_lease(
        request: Request,
        sandbox_id: http.SandboxId,
        body: schemas.ExtensionBody,
        operator: http.Operator,
    ) -> schemas.LeaseAnswer:
        """The same as by its track, recorded as done by the operator."""
        request.state.log = {"sandbox_id": sandbox_id, "action": "extend"}
        track_id = leased_track(await broker.inspect_sandbox(sandbox_id), "extend")
        key = http.read_idempotency_key(request.scope["headers"])
        extension = Extension(track_id, body.minutes, key)
        return schemas.LeaseAnswer.of(await leases.extend(sandbox_id, extension, by=operator))

    @routes.post(
        "/sandboxes/{sandbox_id}/replace",
        "Replace a track's sandbox",
        404,
        409,
        described=secured_by(http.ADMIN_TOKEN, parameters=[http.NAME_PREFIX]),
    )
    async def replace_pool_sandbox(
        request: Request,
        sandbox_id: http.SandboxId,
        body: schemas.ReasonBody,
        operator: http.Operator,
    ) -> schemas.LeaseAnswer:
        """The same as by its track, recorded as done by the operator: returns the track's lease on
        another sandbox, and holds this one."""
        request.state.log = {"sandbox_id": sandbox_id, "action": "replace"}
        track_id = leased_track(await broker.inspect_sandbox(sandbox_id), "replace")
        prefix = http.read_name_prefix(request.scope["headers"])
        wanted = Replacement(track_id, body.reason, prefix, by=operator)
        return schemas.LeaseAnswer.of(await leases.replace(sandbox_id, wanted))


def _add_history(routes: GuardedRoutes, broker: Broker, store: PoolStore) -> None:
    @routes.get("/sandboxes/{sandbox_id}/history", "Get a sandbox's history", 404)
    async def get_pool_sandbox_history(sandbox_id: http.SandboxId, paging: Paging) -> EventPage:
        """Its events, newest first; also of a deleted sandbox."""
        page = await broker.get_history(sandbox_id, **paging)
        return EventPage.of(page, EventAnswer.of)

    @routes.get("/events", "List events")
    async def list_pool_events(
        wanted: Annotated[EventFilter, Depends()], track: _OfTrack = None
    ) -> EventPage:
        """The pool's events, newest first."""
        return await wanted.page(store.events if track is None else TrackEvents(store, track))


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


def _act(broker: Broker, action: Action) -> Callable[..., Awaitable[schemas.PoolSandboxAnswer]]:
    async def act(
        request: Request, sandbox_id: http.SandboxId, operator: http.Operator
    ) -> schemas.PoolSandboxAnswer:
        request.state.log = {"sandbox_id": sandbox_id, "action": str(action)}
        return schemas.PoolSandboxAnswer.of(
            await broker.act(action, sandbox_id=sandbox_id, by=operator)
        )

    return act
