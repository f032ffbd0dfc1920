"""The ports of Previews to their store and to projects. Every method raises UnavailableError if
that is unavailable."""

from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from collections.abc import Set as AbstractSet
from datetime import datetime
from typing import Protocol, TypeVar

from sandyard.kit.changes.transitions import Transition
from sandyard.previews.files import FileChanges, ProjectFile
from sandyard.previews.model import FileQuota, Preview, RunningPreviews

T = TypeVar("T")
PageKey = tuple[datetime, str]
"""The end of a preview and its project's id: the position in a listing of running previews."""


class Project(Protocol):
    """The attributes of a project that Previews need."""

    @property
    def is_archived(self) -> bool: ...

    @property
    def created_at(self) -> datetime: ...


class ProjectLookup(Protocol):
    async def find(self, account_id: str, project_id: str) -> Project | None:
        """The project, if it belongs to this account and is not deleted."""
        ...

    async def hold(
        self, account_id: str, project_id: str, work: Callable[[Project | None], Awaitable[T]]
    ) -> T:
        """Run `work` with the project, as returned by `find`. Until it returns, the project is
        neither archived nor deleted."""
        ...

    async def deleted(self, project_ids: Collection[str]) -> AbstractSet[str]:
        """The deleted ones of these; projects that never existed are not included."""
        ...


class DeletedProjects(ProjectLookup, Protocol):
    async def uncleared(self, *, after: str, limit: int) -> Sequence[str]:
        """The next deleted projects that are not cleared yet, ordered by id; no other rows are
        read."""
        ...

    async def clear(self, project_ids: Collection[str]) -> None:
        """Mark that nothing of these is stored any more."""
        ...


class AccountLookup(Protocol):
    async def deactivated(self, account_ids: Collection[str]) -> AbstractSet[str]:
        """The deactivated ones of these; accounts that never existed are not included."""
        ...


class PreviewStore(Protocol):
    """Previews and the files of their projects, which change only by transitions."""

    async def find(self, project_id: str) -> Preview | None: ...

    async def running(self, account_id: str, *, at: datetime) -> RunningPreviews:
        """The account's previews that run at this time or are being created. A fact: a transition
        decided from it is applied only if it still holds, one at a time per account."""
        ...

    async def count_running(self, *, at: datetime) -> int:
        """How many previews of all accounts run at this time or are being created."""
        ...

    async def read_file_quota(self, about: FileQuota) -> FileQuota:
        """The current fact."""
        ...

    async def with_files(self, account_id: str) -> Sequence[Preview]:
        """The account's previews whose projects have files."""
        ...

    async def apply(
        self, transition: Transition[Preview], *, files: FileChanges | None = None
    ) -> bool:
        """Write the change with its events and files, in one transaction; removing a preview
        removes its project's files too. Nothing and False if the preview, or a fact that the change
        was decided from, has changed."""
        ...

    async def touch(self, preview: Preview, *, last_checked: datetime) -> None:
        """Record when the provider last reported the sandbox, unless the preview has changed or a
        later time is recorded. Not a change of state."""
        ...

    async def count_files(self, project_id: str) -> int: ...

    async def files(self, project_id: str) -> Sequence[ProjectFile]:
        """Ordered by path."""
        ...

    async def changes_since(
        self, project_id: str, version: int
    ) -> tuple[Mapping[str, bytes], Sequence[str], int]:
        """The files written and those deleted after this version, and the current version."""
        ...


class KnownAttempts(Protocol):
    async def known_attempts(self, attempts: Sequence[str], *, now: datetime) -> set[str]:
        """The attempts that are in progress, or created a sandbox that runs."""
        ...


class RemovablePreviews(Protocol):
    async def find_all(self, project_ids: Collection[str]) -> Sequence[Preview]:
        """The existing previews of these projects."""
        ...

    async def erase_deleted(self) -> None:
        """Make deleted data unreadable in the engine's files, as far as the engine supports
        that."""
        ...

    async def page_of_running(
        self, at: datetime, *, after: PageKey | None, limit: int
    ) -> tuple[Sequence[Preview], PageKey | None]:
        """The next previews that run at this time or are being created, ordered by their end, and
        the key of the following page; no other rows are read."""
        ...

    async def files(self, project_id: str) -> Sequence[ProjectFile]: ...

    async def apply(
        self, transition: Transition[Preview], *, files: FileChanges | None = None
    ) -> bool:
        """See `PreviewStore.apply`."""
        ...
