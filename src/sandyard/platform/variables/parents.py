"""The projects and sandboxes that variables are set for."""

from sandyard.kit.ids import is_resource_id
from sandyard.platform.projects.errors import ProjectArchivedError
from sandyard.platform.projects.model import ProjectStatus
from sandyard.platform.projects.service import Projects
from sandyard.platform.sandboxes.errors import SandboxRecycledError, SandboxUnknownError
from sandyard.platform.sandboxes.model import Status
from sandyard.platform.sandboxes.ports import SandboxStore


class ParentProjects:
    def __init__(self, projects: Projects) -> None:
        self._projects = projects

    async def require(self, holder_id: str, *, account_id: str, is_changed: bool) -> None:
        """ProjectNotFoundError, ProjectArchivedError."""
        project = await self._projects.get(account_id, holder_id)
        if is_changed and project.status is ProjectStatus.ARCHIVED:
            raise ProjectArchivedError


class ParentSandboxes:
    def __init__(self, store: SandboxStore) -> None:
        self._store = store

    async def require(self, holder_id: str, *, account_id: str, is_changed: bool) -> None:
        """SandboxUnknownError, SandboxRecycledError."""
        is_id = is_resource_id("sbx", holder_id)
        sandbox = await self._store.find(holder_id, account_id=account_id) if is_id else None
        if sandbox is None:
            raise SandboxUnknownError
        if is_changed and sandbox.status is Status.RECYCLED:
            raise SandboxRecycledError
