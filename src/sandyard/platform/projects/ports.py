"""The store of projects. Every method raises UnavailableError if it is unavailable."""

from collections.abc import Awaitable, Callable, Collection, Sequence
from collections.abc import Set as AbstractSet
from datetime import datetime
from typing import Protocol, TypeVar

from sandyard.platform.entities.apply import OwnedStore
from sandyard.platform.projects.model import Project

T = TypeVar("T")


class ProjectStore(OwnedStore[Project], Protocol):
    """`apply` raises ProjectNameTakenError."""

    async def find_default(self, account_id: str) -> Project | None: ...

    async def hold_project(
        self, account_id: str, project_id: str, work: Callable[[Project | None], Awaitable[T]]
    ) -> T:
        """Run `work` with the project. Until it returns, no other process archives or deletes
        it."""
        ...

    async def deleted_projects(self, project_ids: Collection[str]) -> AbstractSet[str]:
        """Those that were deleted, of any account; unknown ids are not among them."""
        ...

    async def uncleared_projects(self, *, after: str, limit: int) -> Sequence[str]:
        """The next deleted projects of which other parts may have data, ordered by id; no other row
        is read."""
        ...

    async def clear_projects(self, project_ids: Collection[str], *, at: datetime) -> None:
        """Mark that no data of these is left in other parts."""
        ...
