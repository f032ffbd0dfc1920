"""The use cases of projects. Each reads the clock once."""

from datetime import datetime

from sandyard.kit.clock import Clock, utc_time
from sandyard.kit.ids import is_resource_id, resource_id
from sandyard.kit.paging import Page
from sandyard.platform.projects.errors import ProjectNotFoundError
from sandyard.platform.projects.model import (
    Project,
    ProjectChanges,
    ProjectFilter,
    ProjectSort,
    ProjectStatus,
    new_project,
)
from sandyard.platform.projects.ports import ProjectStore


class Projects:
    """Every use case is about the named account's projects; another's are not found."""

    def __init__(self, store: ProjectStore, *, clock: Clock) -> None:
        self._store = store
        self._clock = clock

    async def create(self, account_id: str, *, name: str, description: str | None) -> Project:
        project = new_project(
            project_id=resource_id("prj"),
            name=name,
            description=description,
            owner_account_id=account_id,
            now=self._now(),
        )
        await self._store.add_project(project)
        return project

    async def list(
        self,
        account_id: str,
        only: ProjectFilter,
        *,
        sort: ProjectSort,
        limit: int,
        cursor: str | None,
    ) -> Page[Project]:
        return await self._store.page_of_projects(
            account_id, only, sort=sort, limit=limit, cursor=cursor
        )

    async def get(self, account_id: str, project_id: str) -> Project:
        _require_id(project_id)
        project = await self._store.find_project(account_id, project_id)
        if project is None:
            raise ProjectNotFoundError
        return project

    async def update(self, account_id: str, project_id: str, changes: ProjectChanges) -> Project:
        """Change what is given; ProjectArchivedError, ProjectNameTakenError."""
        _require_id(project_id)
        return await self._store.update_project(account_id, project_id, changes, now=self._now())

    async def archive(self, account_id: str, project_id: str) -> Project:
        """Make it read-only; DefaultProjectError."""
        _require_id(project_id)
        return await self._store.set_status(
            account_id, project_id, ProjectStatus.ARCHIVED, now=self._now()
        )

    async def unarchive(self, account_id: str, project_id: str) -> Project:
        _require_id(project_id)
        return await self._store.set_status(
            account_id, project_id, ProjectStatus.ACTIVE, now=self._now()
        )

    async def make_default(self, account_id: str, project_id: str) -> Project:
        """The one that holds what names no project; ProjectArchivedError."""
        _require_id(project_id)
        return await self._store.make_default(account_id, project_id, now=self._now())

    async def delete(self, account_id: str, project_id: str) -> None:
        """DefaultProjectError, ProjectInUseError."""
        _require_id(project_id)
        await self._store.delete_project(account_id, project_id, now=self._now())

    def _now(self) -> datetime:
        return utc_time(self._clock.now())


def _require_id(project_id: str) -> None:
    if not is_resource_id("prj", project_id):
        raise ProjectNotFoundError
