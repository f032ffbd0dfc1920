"""Calls of accounts for the previews of their projects."""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Annotated, Any, Protocol

from fastapi import APIRouter, Depends, Path, Request, Response

from sandyard.kit.changes.events import EventLog
from sandyard.kit.clock import Clock, utc_time
from sandyard.kit.concurrency.tasks import KeyedLocks
from sandyard.kit.http.events import EventPage, history_of
from sandyard.kit.http.routes import GuardedRoutes, JsonResponse, caller_of, joined
from sandyard.kit.http.schemas import Cursor, Limit
from sandyard.kit.paging import DEFAULT_LIMIT
from sandyard.previews.http.schemas import (
    PreviewStatusAnswer,
    PreviewSyncAnswer,
    ProjectFilesAnswer,
    ProjectFilesBody,
    ProjectVersionAnswer,
    encode_files,
)
from sandyard.previews.service import Previews

_DESCRIPTION = "The id of one of your projects"
ProjectId = Annotated[str, Path(description=_DESCRIPTION)]
_PROJECT_ID = {
    "name": "project_id",
    "in": "path",
    "required": True,
    "schema": {"type": "string", "title": "Project Id", "description": _DESCRIPTION},
    "description": _DESCRIPTION,
}


class Account(Protocol):
    @property
    def account_id(self) -> str: ...

    @property
    def actor(self) -> str:
        """The actor in events."""
        ...


Caller = Annotated[Account, Depends(caller_of)]
Check = Callable[[Request], Awaitable[Account]]


@dataclass(frozen=True, slots=True)
class PreviewChecks:
    """Who may call: an account with its own credential, or a page that shows a preview."""

    account: Check
    status: Check
    sync: Check


def create_previews_router(
    previews: Previews,
    log: EventLog,
    checks: PreviewChecks,
    *,
    security: dict[str, Any],
    clock: Clock,
    prefix: str,
) -> APIRouter:
    """`security` is the security requirement for an account's credential."""

    def routes_for(check: Check) -> GuardedRoutes:
        return GuardedRoutes(
            prefix=f"{prefix}/projects/{{project_id}}",
            tag="previews",
            check=check,
            security=security,
            statuses=(401, 404, 429, 503),
        )

    routes = routes_for(checks.account)
    watching, syncing = routes_for(checks.status), routes_for(checks.sync)
    _add_status(watching, previews, clock)
    _add_sync(syncing, previews)
    _add_stop(routes, previews, clock)
    _add_history(routes, previews, log)
    _add_files(routes, previews)
    return joined(watching.router, syncing.router, routes.router)


def _add_status(routes: GuardedRoutes, previews: Previews, clock: Clock) -> None:
    @routes.get(
        "/sandbox/status",
        "Get a preview's status",
        is_direct=True,
        answers={200: {"model": PreviewStatusAnswer, "description": "Successful Response"}},
        described={"parameters": [_PROJECT_ID]},
    )
    async def get_preview_status(request: Request) -> Response:
        """Asks the provider, unless the preview's end is past. An outage is never reported as an
        end. Also accepts an access token with the scope `status`."""
        project_id, caller = request.path_params["project_id"], request.state.caller
        report = await previews.status(project_id, account_id=caller.account_id)
        answer = PreviewStatusAnswer.of(report, utc_time(clock.now()))
        return JsonResponse(answer.model_dump_json().encode())


def _add_sync(routes: GuardedRoutes, previews: Previews) -> None:
    @routes.post("/sync", "Sync a preview", 409)
    async def sync_preview(
        request: Request, caller: Caller, project_id: ProjectId
    ) -> PreviewSyncAnswer:
        """Updates the running sandbox to the newest files, or creates one if there is none. Also
        accepts an access token with the scope `sync`."""
        request.state.log |= {"action": "sync", "project_id": project_id}
        synced = await previews.sync(project_id, account_id=caller.account_id, actor=caller.actor)
        return PreviewSyncAnswer.of(synced)


def _add_stop(routes: GuardedRoutes, previews: Previews, clock: Clock) -> None:
    @routes.delete("/sandbox", "Stop a preview")
    async def stop_preview(
        request: Request, caller: Caller, project_id: ProjectId
    ) -> PreviewStatusAnswer:
        """The preview becomes `expired`, and the next sync creates a new one. Stopping a preview
        that does not run changes nothing."""
        request.state.log |= {"action": "stop", "project_id": project_id}
        report = await previews.stop(project_id, account_id=caller.account_id, actor=caller.actor)
        return PreviewStatusAnswer.of(report, utc_time(clock.now()))


def _add_history(routes: GuardedRoutes, previews: Previews, log: EventLog) -> None:
    @routes.get("/sandbox/history", "Get a preview's history")
    async def get_preview_history(
        caller: Caller,
        project_id: ProjectId,
        limit: Limit = DEFAULT_LIMIT,
        cursor: Cursor = None,
    ) -> EventPage:
        """Events of the project's preview and files, newest first; also after the project was
        deleted."""
        owner = caller.account_id
        page = await history_of(log, project_id, limit=limit, cursor=cursor, account_id=owner)
        if not page.events:
            await previews.require_project(project_id, account_id=owner)
        return page


def _add_files(routes: GuardedRoutes, previews: Previews) -> None:
    listings = KeyedLocks()

    @routes.get(
        "/files",
        "List a project's files",
        response_class=Response,
        answers={200: {"model": ProjectFilesAnswer, "description": "Every file"}},
    )
    async def list_project_files(caller: Caller, project_id: ProjectId) -> Response:
        """All files with their contents; files that are not UTF-8 are base64. One listing at a
        time."""
        async with listings.of(caller.account_id):  # megabytes each: one at a time per account
            version, files = await previews.list_files(project_id, account_id=caller.account_id)
            body = await asyncio.to_thread(encode_files, project_id, version, files)
        return JsonResponse(body)

    @routes.put("/files", "Change a project's files", 409)
    async def change_project_files(
        caller: Caller, project_id: ProjectId, body: ProjectFilesBody
    ) -> ProjectVersionAnswer:
        """The change set is applied completely or not at all. A running preview gets it with the
        next sync. With `expected_version` it is refused if the files have another version."""
        version = await previews.change_files(
            project_id,
            body.changes(),
            expected_version=body.expected_version,
            account_id=caller.account_id,
            actor=caller.actor,
        )
        return ProjectVersionAnswer(projectId=project_id, version=version)
