"""Calls of operators: look at the pool, act on one sandbox, run a job now."""

from collections.abc import Awaitable, Callable
from typing import Annotated, Any, Protocol

from fastapi import APIRouter, Depends, Query, Request

from sandyard.broker.http.router import SandboxId
from sandyard.broker.http.schemas import (
    AdminSandboxAnswer,
    CleanupAnswer,
    ExpiryAnswer,
    SandboxPage,
    StatsAnswer,
    SyncAnswer,
)
from sandyard.broker.jobs import CleanupReport, ExpiryReport, SyncReport
from sandyard.broker.model import Action, Status
from sandyard.broker.service import Broker
from sandyard.kit.http import BearerGuard, errors, opened_by
from sandyard.kit.paging import CURSOR_PATTERN, DEFAULT_LIMIT, MAX_LIMIT

ADMIN_TOKEN = "AdminToken"  # noqa: S105 - the name of a scheme
_BY_ADMINS = opened_by(ADMIN_TOKEN)


class RunJobs(Protocol):
    """Runs of the jobs to their end, each after one that is under way anywhere."""

    async def sync(self, *, force: bool) -> SyncReport: ...

    async def cleanup(self) -> CleanupReport: ...

    async def expire(self) -> ExpiryReport: ...


def create_admin_router(
    broker: Broker, jobs: RunJobs, guard: BearerGuard, *, prefix: str
) -> APIRouter:
    async def admin(request: Request) -> None:
        guard.check(request)

    router = APIRouter(
        prefix=f"{prefix}/admin",
        tags=["operators"],
        dependencies=[Depends(admin)],
    )

    @router.get(
        "/sandboxes",
        summary="List sandboxes",
        response_model=SandboxPage,
        responses=errors(400, 401, 503),
        openapi_extra=_BY_ADMINS,
    )
    async def list_sandboxes(
        status: Status | None = None,
        limit: Annotated[int, Query(ge=1, le=MAX_LIMIT)] = DEFAULT_LIMIT,
        cursor: Annotated[str | None, Query(pattern=CURSOR_PATTERN)] = None,
    ) -> Any:
        """Page by page; pass `next_cursor` back as `cursor` until it is null."""
        page = await broker.list_sandboxes(status=status, limit=limit, cursor=cursor)
        rows = [AdminSandboxAnswer.of(row) for row in page.items]
        return SandboxPage(sandboxes=rows, next_cursor=page.next_cursor)

    @router.get(
        "/sandboxes/{sandbox_id}",
        summary="Look at any sandbox",
        response_model=AdminSandboxAnswer,
        responses=errors(401, 404, 503),
        openapi_extra=_BY_ADMINS,
    )
    async def get_sandbox(sandbox_id: SandboxId) -> Any:
        """Every attribute of the row."""
        return AdminSandboxAnswer.of(await broker.inspect_sandbox(sandbox_id))

    @router.get(
        "/stats",
        summary="Count the pool",
        response_model=StatsAnswer,
        responses=errors(401, 503),
        openapi_extra=_BY_ADMINS,
    )
    async def stats() -> Any:
        """How many sandboxes are in each state."""
        counts = await broker.stats()
        return {**{str(k): v for k, v in counts.items()}, "total": sum(counts.values())}

    @router.post(
        "/sync",
        summary="Sync with the provider now",
        response_model=SyncAnswer,
        responses=errors(400, 401, 503),
        openapi_extra=_BY_ADMINS,
    )
    async def sync(force: Annotated[bool, Query()] = False) -> Any:  # noqa: FBT002
        """Waits for a run that is under way. `force` also lets most of the pool go stale."""
        return await jobs.sync(force=force)

    @router.post(
        "/cleanup",
        summary="Delete what was given up now",
        response_model=CleanupAnswer,
        responses=errors(401, 503),
        openapi_extra=_BY_ADMINS,
    )
    async def cleanup() -> Any:
        """Waits for a run that is under way."""
        return await jobs.cleanup()

    @router.post(
        "/expire",
        summary="Reclaim what was forgotten now",
        response_model=ExpiryAnswer,
        responses=errors(401, 503),
        openapi_extra=_BY_ADMINS,
    )
    async def expire() -> Any:
        """Waits for a run that is under way."""
        return await jobs.expire()

    for action, text in _ACTIONS.items():
        router.add_api_route(
            f"/sandboxes/{{sandbox_id}}/{action}",
            _act(broker, action),
            methods=["POST"],
            name=f"{action} sandbox",
            summary=f"{action.capitalize()} a sandbox",
            description=text,
            response_model=AdminSandboxAnswer,
            responses=errors(401, 404, 409, 503),
            openapi_extra=_BY_ADMINS,
        )
    return router


_ACTIONS = {
    Action.QUARANTINE: "available → stale: out of the pool until it is restored",
    Action.RESTORE: "stale → available: back into the pool",
    Action.RELEASE: "allocated or stale → pending_deletion: taken from its track",
    Action.RETRY_DELETION: "deletion_failed → pending_deletion: tried again from the start",
}


def _act(broker: Broker, action: Action) -> Callable[..., Awaitable[AdminSandboxAnswer]]:
    async def act(request: Request, sandbox_id: SandboxId) -> AdminSandboxAnswer:
        request.state.log = {"sandbox_id": sandbox_id, "action": str(action)}
        return AdminSandboxAnswer.of(await broker.act(action, sandbox_id=sandbox_id))

    return act
