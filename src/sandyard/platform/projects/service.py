"""The use cases of projects."""

from collections.abc import Awaitable, Callable, Collection, Sequence
from collections.abc import Set as AbstractSet
from datetime import datetime
from typing import Protocol, TypeVar

from sandyard.kit.changes.transitions import Transition
from sandyard.kit.clock import Clock, utc_time
from sandyard.kit.ids import is_resource_id
from sandyard.platform.access.principal import Principal
from sandyard.platform.entities.apply import OwnedStore, apply_all
from sandyard.platform.entities.model import FieldChanges
from sandyard.platform.entities.service import OwnedEntities
from sandyard.platform.projects import model
from sandyard.platform.projects.errors import ProjectNotFoundError
from sandyard.platform.projects.model import Project, ProjectContents
from sandyard.platform.quotas.model import CountQuota, ResourceKind

T = TypeVar("T")


class ProjectStore(OwnedStore[Project], Protocol):
    """`apply` raises ProjectNameTakenError."""

    async def find_default(self, account_id: str) -> Project | None: ...

    async def hold_project(
        self, account_id: str, project_id: str, work: Callable[[Project | None], Awaitable[T]]
    ) -> T:
        """Run `work` with the project. Until it returns, no other process archives or deletes
        it."""

    async def deleted_projects(self, project_ids: Collection[str]) -> AbstractSet[str]:
        """Those that were deleted, of any account; unknown ids are not among them."""

    async def uncleared_projects(self, *, after: str, limit: int) -> Sequence[str]:
        """The next deleted projects of which other parts may have data, ordered by id; no other row
        is read."""

    async def clear_projects(self, project_ids: Collection[str], *, at: datetime) -> None:
        """Mark that no data of these is left in other parts."""


class Projects(OwnedEntities[Project, ProjectStore]):
    id_prefix = "prj"
    not_found = ProjectNotFoundError

    def __init__(self, store: ProjectStore, *, clock: Clock, per_account: int) -> None:
        super().__init__(store, clock=clock)
        self._per_account = per_account

    async def create(self, principal: Principal, *, name: str, description: str | None) -> Project:
        """ProjectNameTakenError, ProjectsLimitError."""
        cause = self._cause(principal)
        quota = CountQuota(ResourceKind.PROJECTS, principal.account_id, self._per_account)

        async def decide(project_id: str) -> Transition[Project]:
            return model.create_project(
                project_id=project_id,
                account_id=principal.account_id,
                name=name,
                description=description,
                quota=await self._store.read_fact(quota),
                cause=cause,
            )

        return await self._create(principal, decide)

    async def hold(
        self, account_id: str, project_id: str, work: Callable[[Project | None], Awaitable[T]]
    ) -> T:
        """Run `work` with the project, or None. Until it returns the project is neither archived
        nor deleted."""
        if not is_resource_id("prj", project_id):
            return await work(None)
        async with self._locks.of(project_id):
            return await self._store.hold_project(account_id, project_id, work)

    async def deleted(self, project_ids: Collection[str]) -> AbstractSet[str]:
        """Those that were deleted, of any account; unknown ids are not among them."""
        return await self._store.deleted_projects(project_ids) if project_ids else frozenset()

    async def uncleared(self, *, after: str, limit: int) -> Sequence[str]:
        """The next deleted projects of which other parts may have data, ordered by id; no other is
        read."""
        return await self._store.uncleared_projects(after=after, limit=limit)

    async def clear(self, project_ids: Collection[str]) -> None:
        """Mark that other parts have no data of these deleted projects any more."""
        if project_ids:
            await self._store.clear_projects(project_ids, at=utc_time(self._clock.now()))

    async def update(self, principal: Principal, project_id: str, changes: FieldChanges) -> Project:
        """Change the given fields; ProjectArchivedError, ProjectNameTakenError."""
        return await self._change(
            principal,
            project_id,
            lambda project, cause: model.update_project(project, changes, cause),
        )

    async def archive(self, principal: Principal, project_id: str) -> Project:
        """Make it read-only; DefaultProjectError."""
        return await self._change(principal, project_id, model.archive_project)

    async def unarchive(self, principal: Principal, project_id: str) -> Project:
        return await self._change(principal, project_id, model.unarchive_project)

    async def make_default(self, principal: Principal, project_id: str) -> Project:
        """Make it the project of sandboxes that name none; ProjectArchivedError."""
        cause = self._cause(principal)

        async def decide() -> Sequence[Transition[Project]]:
            former = await self._store.find_default(principal.account_id)
            return model.make_default(
                await self.get(principal.account_id, project_id), former, cause
            )

        async with self._locks.of(principal.account_id):
            made = await apply_all(self._store, decide)
        if not made:
            return await self.get(principal.account_id, project_id)
        project: Project = made[-1].result
        return project

    async def delete(self, principal: Principal, project_id: str) -> None:
        """DefaultProjectError, ProjectInUseError."""
        cause = self._cause(principal)

        async def decide() -> Transition[Project]:
            project = await self.get(principal.account_id, project_id)
            contents = await self._store.read_fact(ProjectContents(project_id))
            return model.delete_project(project, contents, cause)

        async with self._locks.of(project_id):
            await self._apply(decide)
