"""Calls about projects."""

from datetime import datetime
from typing import Annotated

from fastapi import APIRouter, Path, Query

from sandyard.kit.http.schemas import PageAnswer, Paging, eg, example
from sandyard.platform.access.guard import AccessGuard
from sandyard.platform.access.routes import Caller, account_routes
from sandyard.platform.entities.model import Listing
from sandyard.platform.http.fields import Answer, NamedBody, NewNamedBody, Search
from sandyard.platform.projects.model import ProjectFilter, ProjectSort, ProjectStatus
from sandyard.platform.projects.service import Projects


class NewProjectBody(NewNamedBody):
    model_config = example(name="Shop", description="The web shop and its admin pages")


class ProjectBody(NamedBody):
    """Fields that are left out stay as they are."""

    model_config = example(name="Web shop")


class ProjectAnswer(Answer):
    project_id: str = eg("prj-4k8s0m2q6w1c9x7ab")
    name: str = eg("Shop")
    description: str | None = eg("The web shop and its admin pages")
    status: ProjectStatus = eg("active")
    is_default: bool = eg(False)
    created_at: datetime = eg("2026-10-30T09:00:00Z")
    updated_at: datetime = eg("2026-10-30T09:00:00Z")


class ProjectPage(PageAnswer):
    projects: list[ProjectAnswer]
    next_cursor: str | None


_ProjectId = Annotated[str, Path(description="The id from the response that created it")]


def create_projects_router(projects: Projects, guard: AccessGuard) -> APIRouter:
    routes = account_routes(guard, "/projects", tag="projects")

    @routes.make("", "Create a project", status_code=201)
    async def create_project(body: NewProjectBody, caller: Caller) -> ProjectAnswer:
        """Its name is unique among your projects."""
        made = await projects.create(caller, name=body.name, description=body.description)
        return ProjectAnswer.of(made)

    @routes.get("", "List your projects")
    async def list_projects(
        caller: Caller,
        paging: Paging,
        q: Search = None,
        status: Annotated[ProjectStatus | None, Query(description="Only this status")] = None,
        is_default: Annotated[
            bool | None, Query(description="Only the default project, or only the others")
        ] = None,
        sort: Annotated[
            ProjectSort, Query(description="`-` before a name: descending")
        ] = ProjectSort.NEWEST,
    ) -> ProjectPage:
        """`q` searches name and description."""
        listing = Listing(ProjectFilter(q, status, is_default), sort, **paging)
        page = await projects.list(caller.account_id, listing)
        return ProjectPage.of(page, ProjectAnswer.of)

    @routes.get("/{project_id}", "Get a project", 404)
    async def get_project(project_id: _ProjectId, caller: Caller) -> ProjectAnswer:
        """One of your projects, archived or not."""
        return ProjectAnswer.of(await projects.get(caller.account_id, project_id))

    @routes.patch("/{project_id}", "Rename or describe a project", 404, 409)
    async def update_project(
        project_id: _ProjectId, body: ProjectBody, caller: Caller
    ) -> ProjectAnswer:
        """Null removes the description. An archived project is read-only."""
        changed = await projects.update(caller, project_id, body.sent())
        return ProjectAnswer.of(changed)

    @routes.post("/{project_id}/archive", "Archive a project", 404, 409)
    async def archive_project(project_id: _ProjectId, caller: Caller) -> ProjectAnswer:
        """Makes it read-only. The default project can't be archived."""
        return ProjectAnswer.of(await projects.archive(caller, project_id))

    @routes.post("/{project_id}/unarchive", "Unarchive a project", 404)
    async def unarchive_project(project_id: _ProjectId, caller: Caller) -> ProjectAnswer:
        """It can be changed again."""
        return ProjectAnswer.of(await projects.unarchive(caller, project_id))

    @routes.post("/{project_id}/make-default", "Make a project the default", 404, 409)
    async def make_project_default(project_id: _ProjectId, caller: Caller) -> ProjectAnswer:
        """Replaces the previous default: there is always exactly one."""
        return ProjectAnswer.of(await projects.make_default(caller, project_id))

    @routes.delete("/{project_id}", "Delete a project", 404, 409, status_code=204)
    async def delete_project(project_id: _ProjectId, caller: Caller) -> None:
        """Archived or not. The default project, and projects with sandboxes, can't be deleted."""
        await projects.delete(caller, project_id)

    return routes.router
