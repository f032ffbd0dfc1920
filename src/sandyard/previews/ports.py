"""The ports of Previews to their engine and to projects. Every method raises UnavailableError if
that is unavailable."""

from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from collections.abc import Set as AbstractSet
from datetime import datetime
from typing import Protocol, TypeVar

from sandyard.kit.transitions import Transition
from sandyard.previews.files import FileChanges, ProjectFile
from sandyard.previews.model import FileQuota, Preview, RunningPreviews

T = TypeVar("T")
PageKey = tuple[datetime, str]
"""When a preview ends and its project's id: where a listing of running previews goes on."""


class Project(Protocol):
    """What Previews need to know of a project."""

    @property
    def is_archived(self) -> bool: ...

    @property
    def created_at(self) -> datetime: ...


class ProjectLookup(Protocol):
    async def find(self, account_id: str, project_id: str) -> Project | None:
        """The project, if it is this account's and not deleted."""
        ...

    async def hold(
        self, account_id: str, project_id: str, work: Callable[[Project | None], Awaitable[T]]
    ) -> T:
        """Run `work` with the project, as `find` gives it. Until it returns the project is neither
        archived nor deleted."""
        ...

    async def deleted(self, project_ids: Collection[str]) -> AbstractSet[str]:
        """Those that were deleted; one that never was is not among them."""
        ...


class DeletedProjects(ProjectLookup, Protocol):
    async def uncleared(self, *, after: str, limit: int) -> Sequence[str]:
        """The next deleted projects that are not cleared yet, in the order of their ids; no other
        is read."""
        ...

    async def clear(self, project_ids: Collection[str]) -> None:
        """Nothing is kept of these any more."""
        ...


class AccountLookup(Protocol):
    async def deactivated(self, account_ids: Collection[str]) -> AbstractSet[str]:
        """Those that are deactivated; one that never was is not among them."""
        ...


class PreviewStore(Protocol):
    """Previews and the files of their projects, which change by transitions alone."""

    async def find(self, project_id: str) -> Preview | None: ...

    async def running(self, account_id: str, *, at: datetime) -> RunningPreviews:
        """Those of the account that run at this time or are being made. A fact: a transition that
        was decided from it is applied if it is still so, one at a time per account."""
        ...

    async def count_running(self, *, at: datetime) -> int:
        """How many of all accounts run at this time or are being made."""
        ...

    async def read_file_quota(self, about: FileQuota) -> FileQuota:
        """The fact as it is now."""
        ...

    async def with_files(self, account_id: str) -> Sequence[Preview]:
        """Those of the account whose projects have files."""
        ...

    async def apply(
        self, transition: Transition[Preview], *, files: FileChanges | None = None
    ) -> bool:
        """Write the change with its events and files, in one transaction; with the preview's
        removal its project's files go too. Nothing and False if the preview, or a fact that it
        was decided from, is not any more as it was then."""
        ...

    async def touch(self, preview: Preview, *, last_checked: datetime) -> None:
        """Record when the provider last reported the sandbox, unless the preview has changed or a
        later time is recorded. No change of state."""
        ...

    async def count_files(self, project_id: str) -> int: ...

    async def files(self, project_id: str) -> Sequence[ProjectFile]:
        """In order of their paths."""
        ...

    async def changes_since(
        self, project_id: str, version: int
    ) -> tuple[Mapping[str, bytes], Sequence[str], int]:
        """What was written and what was deleted after this version, and the version now."""
        ...


class KnownAttempts(Protocol):
    async def known_attempts(self, attempts: Sequence[str], *, now: datetime) -> set[str]:
        """Those of the attempts that are under way, or made a sandbox that runs."""
        ...


class RemovablePreviews(Protocol):
    async def find_all(self, project_ids: Collection[str]) -> Sequence[Preview]:
        """The existing previews of these projects."""
        ...

    async def erase_deleted(self) -> None:
        """What was deleted can't be read from the engine's files any more, as far as the engine
        lets this be asked for."""
        ...

    async def page_of_running(
        self, at: datetime, *, after: PageKey | None, limit: int
    ) -> tuple[Sequence[Preview], PageKey | None]:
        """The next of those that run at this time or are being made, in the order in which they
        end, and where the page after it begins; no other row is read."""
        ...

    async def files(self, project_id: str) -> Sequence[ProjectFile]: ...

    async def apply(
        self, transition: Transition[Preview], *, files: FileChanges | None = None
    ) -> bool:
        """As `PreviewStore.apply`."""
        ...
