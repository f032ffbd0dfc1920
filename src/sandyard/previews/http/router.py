"""Calls of accounts for the previews of their projects."""

from collections.abc import Awaitable, Callable
from typing import Annotated, Any, Protocol

from fastapi import APIRouter, Body, Depends, Path, Request

from sandyard.kit.clock import Clock, utc_time
from sandyard.kit.http import errors
from sandyard.previews.http.schemas import (
    FileAnswer,
    FilesAnswer,
    FilesBody,
    StatusAnswer,
    SyncAnswer,
    VersionAnswer,
)
from sandyard.previews.service import Previews

ProjectId = Annotated[str, Path(description="Of one of your projects")]


class Account(Protocol):
    @property
    def account_id(self) -> str: ...


def create_previews_router(
    previews: Previews,
    account: Callable[[Request], Awaitable[Account]],
    *,
    opened_by: dict[str, Any],
    clock: Clock,
    prefix: str,
) -> APIRouter:
    """`account` tells who calls, and `opened_by` describes how callers say so."""
    router = APIRouter(prefix=f"{prefix}/projects/{{project_id}}", tags=["previews"])
    Caller = Annotated[Any, Depends(account)]  # noqa: N806 - a type

    @router.get(
        "/sandbox/status",
        summary="How a project's preview stands",
        response_model=StatusAnswer,
        responses=errors(401, 404, 503),
        openapi_extra=opened_by,
    )
    async def status(caller: Caller, project_id: ProjectId) -> Any:
        """Asks the provider, unless the end is past. Its trouble is never told as an end."""
        verdict = await previews.status(project_id, account_id=caller.account_id)
        return StatusAnswer.of(verdict, utc_time(clock.now()))

    @router.post(
        "/sync",
        summary="Bring a project's preview up to date",
        response_model=SyncAnswer,
        responses=errors(401, 404, 409, 503),
        openapi_extra=opened_by,
    )
    async def sync(request: Request, caller: Caller, project_id: ProjectId) -> Any:
        """The running sandbox with the newest files, or one new one if there is none."""
        request.state.log |= {"action": "sync", "project_id": project_id}
        return SyncAnswer.of(await previews.sync(project_id, account_id=caller.account_id))

    @router.get(
        "/files",
        summary="A project's files",
        response_model=FilesAnswer,
        responses=errors(401, 404, 503),
        openapi_extra=opened_by,
    )
    async def list_files(caller: Caller, project_id: ProjectId) -> Any:
        """All of them with their contents; what is no UTF-8 is base64."""
        version, files = await previews.list_files(project_id, account_id=caller.account_id)
        shown = [FileAnswer.of(file) for file in files]
        return FilesAnswer(projectId=project_id, version=version, files=shown)

    @router.put(
        "/files",
        summary="Change a project's files",
        response_model=VersionAnswer,
        responses=errors(400, 401, 404, 409, 503),
        openapi_extra=opened_by,
    )
    async def change_files(
        caller: Caller, project_id: ProjectId, body: Annotated[FilesBody, Body()]
    ) -> Any:
        """All of the change set or nothing. A running preview gets it with the next sync."""
        version = await previews.change_files(
            project_id, body.changes(), account_id=caller.account_id
        )
        return VersionAnswer(projectId=project_id, version=version)

    return router
