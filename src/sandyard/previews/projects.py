"""An account's project and what is stored of its preview."""

from dataclasses import dataclass

from sandyard.previews.errors import PreviewProjectArchivedError, PreviewProjectNotFoundError
from sandyard.previews.model import Preview
from sandyard.previews.ports import PreviewStore, Project, ProjectLookup


@dataclass(frozen=True, slots=True)
class ProjectPreviews:
    store: PreviewStore
    projects: ProjectLookup

    async def get(self, project_id: str, account_id: str, *, writable: bool = False) -> Preview:
        project = await self.get_project(project_id, account_id, writable=writable)
        preview = await self.store.find(project_id)
        return preview or Preview(project_id, account_id, project.created_at)

    async def get_project(
        self, project_id: str, account_id: str, *, writable: bool = False
    ) -> Project:
        project = await self.projects.find(account_id, project_id)
        return require_project(project, writable=writable)


def require_project(project: Project | None, *, writable: bool) -> Project:
    """Raises PreviewProjectNotFoundError and, if it must be writable,
    PreviewProjectArchivedError."""
    if project is None:
        raise PreviewProjectNotFoundError
    if writable and project.is_archived:
        raise PreviewProjectArchivedError
    return project
