"""What the projects need of an engine. Every method raises UnavailableError when it is away."""

from datetime import datetime
from typing import Protocol

from sandyard.kit.paging import Page
from sandyard.platform.projects.model import (
    Project,
    ProjectChanges,
    ProjectFilter,
    ProjectSort,
    ProjectStatus,
)


class ProjectStore(Protocol):
    """Every method sees the projects of the named account alone, and none that was deleted.

    Those that change one raise ProjectNotFoundError if the account has no such project.
    """

    async def add_project(self, project: Project) -> None:
        """Keep it; ProjectNameTakenError."""
        ...

    async def find_project(self, account_id: str, project_id: str) -> Project | None: ...

    async def page_of_projects(
        self,
        account_id: str,
        only: ProjectFilter,
        *,
        sort: ProjectSort,
        limit: int,
        cursor: str | None,
    ) -> Page[Project]: ...

    async def update_project(
        self, account_id: str, project_id: str, changes: ProjectChanges, *, now: datetime
    ) -> Project:
        """Change an active project; ProjectArchivedError, ProjectNameTakenError."""
        ...

    async def set_status(
        self, account_id: str, project_id: str, status: ProjectStatus, *, now: datetime
    ) -> Project:
        """DefaultProjectError if the default one would be archived."""
        ...

    async def make_default(self, account_id: str, project_id: str, *, now: datetime) -> Project:
        """Take the part of default from the one that has it, in one step: there is always exactly
        one. ProjectArchivedError."""
        ...

    async def delete_project(self, account_id: str, project_id: str, *, now: datetime) -> None:
        """DefaultProjectError; ProjectInUseError if it holds a sandbox that is not recycled."""
        ...
