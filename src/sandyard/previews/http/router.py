"""Calls of accounts for the previews of their projects."""

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import asdict, dataclass
from datetime import datetime
from typing import Annotated, Any, Protocol, Self

from fastapi import APIRouter, Depends, Path, Request, Response
from pydantic import BaseModel, Field

from sandyard.kit.changes.events import EventLog
from sandyard.kit.clock import Clock, utc_time
from sandyard.kit.concurrency.streams import StreamLimit
from sandyard.kit.http.events import EventPage, history_of
from sandyard.kit.http.routes import GuardedRoutes, JsonResponse, caller_of, joined
from sandyard.kit.http.schemas import Documented, Paging, eg, inline
from sandyard.previews.http.files import add_files
from sandyard.previews.http.logs import add_log
from sandyard.previews.http.look import add_look
from sandyard.previews.look.service import Looks
from sandyard.previews.model import SandboxInfo, SyncOutcome, iso, remaining_minutes
from sandyard.previews.ports import PHASES, Application
from sandyard.previews.project_files import ProjectFiles
from sandyard.previews.publishing.http import UrlOf, add_publishing
from sandyard.previews.publishing.service import Publishing
from sandyard.previews.service import Previews, Synced
from sandyard.previews.status_model import ActionRequired, PreviewStatus, StatusReport

InlineStatus = Annotated[PreviewStatus, inline(PreviewStatus)]
_EXAMPLE_ID = "prj-4k8s0m2q6w1c9x7ab"
_PREVIEW = {
    "sandbox_id": "sbx-1m4p7s0v3y6b9e2hk",
    "preview_url": "http://8080-prj-4k8s0m2q6w1c9x7ab.localhost:8080/",
    "start_time": "2026-10-30T09:00:00Z",
    "end_time": "2026-10-30T10:00:00Z",
}


class PreviewAnswer(BaseModel):
    sandbox_id: str
    preview_url: str
    start_time: str = Field(description="ISO 8601, UTC")
    end_time: str = Field(description="ISO 8601, UTC; as last reported by the provider")

    @classmethod
    def of(cls, info: SandboxInfo) -> Self:
        return cls(
            sandbox_id=info.sandbox_id,
            preview_url=info.preview_url,
            start_time=iso(info.start_time),
            end_time=iso(info.end_time),
        )


class CheckedPreviewAnswer(PreviewAnswer):
    remaining_time_minutes: int
    last_checked: str = Field(description="When the provider last responded")


class ApplicationAnswer(BaseModel):
    phase: Annotated[str, Field(json_schema_extra={"enum": list(PHASES)})]
    kind: str = Field(description="What the project is: `static`, `vite`, `next`, `flask`, …")
    exit_code: int | None = Field(description="Of the installation or the server that has failed")
    last_lines: Sequence[str] = Field(description="Of its log, unless it runs")


class PreviewStatusAnswer(Documented):
    success: bool = eg(True, True)
    status: InlineStatus = eg("running")
    stale: bool = eg(
        False, description="The provider did not respond in time; this is its last known status"
    )
    sandbox_info: CheckedPreviewAnswer | None = eg(
        _PREVIEW | {"remaining_time_minutes": 42, "last_checked": "2026-10-30T09:18:00Z"}
    )
    action_required: ActionRequired = eg("none")
    message: str = eg("The preview is running.")
    application: ApplicationAnswer | None = eg(
        {"phase": "running", "kind": "vite", "exit_code": None, "last_lines": []},
        description="What runs in it; null if it does not run, or that is not known yet",
    )
    retry_after: int | None = eg(None, description="Seconds, with `retry_later`")

    @classmethod
    def of(
        cls, report: StatusReport, now: datetime, application: Application | None = None
    ) -> Self:
        info = None
        if report.info is not None and report.last_checked is not None:
            info = CheckedPreviewAnswer(
                **PreviewAnswer.of(report.info).model_dump(),
                remaining_time_minutes=remaining_minutes(report.info.end_time, now=now),
                last_checked=iso(report.last_checked),
            )
        return cls(
            status=report.status,
            stale=report.is_stale,
            sandbox_info=info,
            action_required=report.action,
            message=report.message,
            application=None if application is None else ApplicationAnswer(**asdict(application)),
            retry_after=report.retry_after,
        )


class PreviewSyncData(BaseModel):
    projectId: str  # noqa: N815 - the name that front ends know
    sandbox_info: PreviewAnswer
    filesCount: int  # noqa: N815
    version: int = Field(description="Version of the files in the sandbox")
    outcome: SyncOutcome = Field(
        description="What the sync did: `created` a sandbox; sent files (`updated`), among them "
        "what packages are `installed` from or what it is `restarted` by; nothing (`unchanged`)"
    )


class PreviewSyncAnswer(Documented):
    success: bool = eg(True, True)
    data: PreviewSyncData = eg(
        {"projectId": _EXAMPLE_ID, "sandbox_info": _PREVIEW, "filesCount": 1, "version": 3}
        | {"outcome": "updated"}
    )
    message: str = eg("The preview is running.")

    @classmethod
    def of(cls, synced: Synced) -> Self:
        return cls(
            data=PreviewSyncData(
                projectId=synced.project_id,
                sandbox_info=PreviewAnswer.of(synced.info),
                filesCount=synced.files_count,
                version=synced.version,
                outcome=synced.outcome,
            ),
            message="The preview is running."
            if synced.outcome == "created"
            else "The sandbox was already running.",
        )


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


Caller = Annotated[Account, Depends(caller_of)]
Check = Callable[[Request], Awaitable[Account]]


@dataclass(frozen=True, slots=True)
class PreviewChecks:
    """Who may call: an account with its own credential, or a page that shows a preview."""

    account: Check
    status: Check
    sync: Check
    streams: StreamLimit


def create_previews_router(
    previews: Previews,
    files: ProjectFiles,
    log: EventLog,
    checks: PreviewChecks,
    looks: Looks,
    publishing: Publishing,
    published_url_of: UrlOf,
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
    add_log(watching, previews, checks.status, checks.streams)
    _add_sync(syncing, previews)
    _add_stop(routes, previews, clock)
    add_look(routes, looks)
    _add_history(routes, previews, log)
    add_files(routes, files)
    add_publishing(routes, publishing, published_url_of)
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
        application = await previews.application(report)
        answer = PreviewStatusAnswer.of(report, utc_time(clock.now()), application)
        response = JsonResponse(answer.model_dump_json().encode())
        if answer.retry_after is not None:
            response.headers["Retry-After"] = str(answer.retry_after)
        return response


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
        caller: Caller, project_id: ProjectId, paging: Paging
    ) -> EventPage:
        """Events of the project's preview and files, newest first; also after the project was
        deleted."""
        owner = caller.account_id
        page = await history_of(log, project_id, paging, account_id=owner)
        if not page.events:
            await previews.require_project(project_id, account_id=owner)
        return page
