"""The store of projects. Every method raises UnavailableError if it is unavailable."""

from collections.abc import Awaitable, Callable, Collection, Sequence
from collections.abc import Set as AbstractSet
from datetime import datetime
from typing import Protocol, TypeVar

from sandyard.kit.paging import Page
from sandyard.platform.changes.apply import TransitionStore
from sandyard.platform.listings.model import Listing
from sandyard.platform.projects.model import (
    Project,
    ProjectContents,
    ProjectFilter,
)
from sandyard.platform.quotas.model import CountQuota

T = TypeVar("T")


class ProjectStore(TransitionStore, Protocol):
    """Finders with an account return only its projects, and no deleted ones. `apply`
    raises ProjectNameTakenError."""

    async def find_project(self, account_id: str, project_id: str) -> Project | None: ...

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

    async def read_count_quota(self, about: CountQuota) -> CountQuota: ...

    async def find_contents(self, project_id: str) -> ProjectContents: ...

    async def page_of_projects(
        self, account_id: str, listing: Listing[ProjectFilter]
    ) -> Page[Project]: ...
