"""Calls about projects."""

from datetime import datetime
from typing import Annotated, Any, Self

from fastapi import APIRouter, Body, Depends
from pydantic import BaseModel

from sandyard.kit.http import errors
from sandyard.kit.paging import DEFAULT_LIMIT
from sandyard.platform.access import OPENED_BY_ACCOUNTS, AccessGuard
from sandyard.platform.fields import (
    Cursor,
    Description,
    Limit,
    Name,
    RequestBody,
    Search,
    unchanged,
)
from sandyard.platform.principal import Principal
from sandyard.platform.projects.model import (
    Project,
    ProjectChanges,
    ProjectFilter,
    ProjectSort,
    ProjectStatus,
)
from sandyard.platform.projects.service import Projects


class NewProjectBody(RequestBody):
    name: Name
    description: Description | None = None


class ProjectBody(RequestBody):
    """Fields that are left out stay as they are."""

    name: Name = unchanged()
    description: Description | None = None

    def changes(self) -> ProjectChanges:
        changes: ProjectChanges = {}
        if "name" in self.model_fields_set:
            changes["name"] = self.name
        if "description" in self.model_fields_set:
            changes["description"] = self.description
        return changes


class ProjectAnswer(BaseModel):
    project_id: str
    name: str
    description: str | None
    status: ProjectStatus
    is_default: bool
    created_at: datetime
    updated_at: datetime

    @classmethod
    def of(cls, project: Project) -> Self:
        return cls.model_validate(project, from_attributes=True)


class ProjectPage(BaseModel):
    projects: list[ProjectAnswer]
    next_cursor: str | None


def create_projects_router(projects: Projects, guard: AccessGuard, *, prefix: str) -> APIRouter:
    router = APIRouter(prefix=f"{prefix}/projects", tags=["projects"])
    Caller = Annotated[Principal, Depends(guard.account)]  # noqa: N806 - a type

    @router.post(
        "",
        summary="Make a project",
        status_code=201,
        response_model=ProjectAnswer,
        responses=errors(400, 401, 409, 503),
        openapi_extra=OPENED_BY_ACCOUNTS,
    )
    async def create_project(body: Annotated[NewProjectBody, Body()], caller: Caller) -> Any:
        """Its name is unique among yours."""
        made = await projects.create(
            caller.account_id, name=body.name, description=body.description
        )
        return ProjectAnswer.of(made)

    @router.get(
        "",
        summary="List your projects",
        response_model=ProjectPage,
        responses=errors(400, 401, 503),
        openapi_extra=OPENED_BY_ACCOUNTS,
    )
    async def list_projects(
        caller: Caller,
        q: Search = None,
        status: ProjectStatus | None = None,
        is_default: bool | None = None,
        sort: ProjectSort = ProjectSort.NEWEST,
        limit: Limit = DEFAULT_LIMIT,
        cursor: Cursor = None,
    ) -> Any:
        """`q` looks into name and description."""
        page = await projects.list(
            caller.account_id,
            ProjectFilter(q, status, is_default),
            sort=sort,
            limit=limit,
            cursor=cursor,
        )
        shown = [ProjectAnswer.of(project) for project in page.items]
        return ProjectPage(projects=shown, next_cursor=page.next_cursor)

    @router.get(
        "/{project_id}",
        summary="Look at a project",
        response_model=ProjectAnswer,
        responses=errors(401, 404, 503),
        openapi_extra=OPENED_BY_ACCOUNTS,
    )
    async def get_project(project_id: str, caller: Caller) -> Any:
        """One of yours, archived or not."""
        return ProjectAnswer.of(await projects.get(caller.account_id, project_id))

    @router.patch(
        "/{project_id}",
        summary="Rename or describe a project",
        response_model=ProjectAnswer,
        responses=errors(400, 401, 404, 409, 503),
        openapi_extra=OPENED_BY_ACCOUNTS,
    )
    async def update_project(
        project_id: str, body: Annotated[ProjectBody, Body()], caller: Caller
    ) -> Any:
        """Null takes the description away. An archived project is read-only."""
        return ProjectAnswer.of(
            await projects.update(caller.account_id, project_id, body.changes())
        )

    @router.post(
        "/{project_id}/archive",
        summary="Archive a project",
        response_model=ProjectAnswer,
        responses=errors(401, 404, 409, 503),
        openapi_extra=OPENED_BY_ACCOUNTS,
    )
    async def archive_project(project_id: str, caller: Caller) -> Any:
        """It becomes read-only. Not the default project."""
        return ProjectAnswer.of(await projects.archive(caller.account_id, project_id))

    @router.post(
        "/{project_id}/unarchive",
        summary="Take a project back from the archive",
        response_model=ProjectAnswer,
        responses=errors(401, 404, 503),
        openapi_extra=OPENED_BY_ACCOUNTS,
    )
    async def unarchive_project(project_id: str, caller: Caller) -> Any:
        """It can be changed again."""
        return ProjectAnswer.of(await projects.unarchive(caller.account_id, project_id))

    @router.post(
        "/{project_id}/make-default",
        summary="Make a project the default",
        response_model=ProjectAnswer,
        responses=errors(401, 404, 409, 503),
        openapi_extra=OPENED_BY_ACCOUNTS,
    )
    async def make_default(project_id: str, caller: Caller) -> Any:
        """In place of the one before: there is always exactly one."""
        return ProjectAnswer.of(await projects.make_default(caller.account_id, project_id))

    @router.delete(
        "/{project_id}",
        summary="Delete a project",
        status_code=204,
        responses=errors(401, 404, 409, 503),
        openapi_extra=OPENED_BY_ACCOUNTS,
    )
    async def delete_project(project_id: str, caller: Caller) -> None:
        """Archived or not. Not the default project, nor one that holds sandboxes."""
        await projects.delete(caller.account_id, project_id)

    return router
