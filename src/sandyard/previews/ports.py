"""The ports of Previews to their store, to projects and to the providers of their sandboxes. Every
method raises UnavailableError if that is unavailable."""

from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Protocol, TypeVar

from sandyard.kit.changes.transitions import Transition
from sandyard.previews.files import (
    Entry,
    FileChanges,
    ProjectFile,
    Publication,
    PublicationChange,
    PublishAttempt,
    Version,
)
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

    async def hold(
        self, account_id: str, project_id: str, work: Callable[[Project | None], Awaitable[T]]
    ) -> T:
        """Run `work` with the project, as returned by `find`. Until it returns, the project is
        neither archived nor deleted."""

    async def deleted(self, project_ids: Collection[str]) -> AbstractSet[str]:
        """The deleted ones of these; projects that never existed are not included."""

    async def uncleared(self, *, after: str, limit: int) -> Sequence[str]:
        """The next deleted projects that are not cleared yet, ordered by id; no other rows are
        read."""

    async def clear(self, project_ids: Collection[str]) -> None:
        """Mark that nothing of these is stored any more."""


class AccountLookup(Protocol):
    async def deactivated(self, account_ids: Collection[str]) -> AbstractSet[str]:
        """The deactivated ones of these; accounts that never existed are not included."""


class PreviewStore(Protocol):
    """Previews and the files of their projects, which change only by transitions."""

    async def find(self, project_id: str) -> Preview | None: ...

    async def find_all(self, project_ids: Collection[str]) -> Sequence[Preview]:
        """The existing previews of these projects."""

    async def page(self, *, after: str, limit: int) -> Sequence[Preview]:
        """The next ones, ordered by project id."""

    async def page_of_running(
        self, at: datetime, *, after: PageKey | None, limit: int
    ) -> tuple[Sequence[Preview], PageKey | None]:
        """The next previews that run at this time or are being created, ordered by their end, and
        the key of the following page; no other rows are read."""

    async def known_attempts(self, attempts: Sequence[str], *, now: datetime) -> set[str]:
        """The attempts that are in progress, or created a sandbox that runs."""

    async def running(self, account_id: str, *, at: datetime) -> RunningPreviews:
        """The account's previews that run at this time or are being created. A fact: a transition
        decided from it is applied only if it still holds, one at a time per account."""

    async def count_running(self, *, at: datetime) -> int:
        """How many previews of all accounts run at this time or are being created."""

    async def read_file_quota(self, about: FileQuota) -> FileQuota:
        """The current fact."""

    async def with_files(self, account_id: str) -> Sequence[Preview]:
        """The account's previews whose projects have files, in any version."""

    async def apply(
        self,
        transition: Transition[Preview],
        *,
        files: FileChanges | None = None,
        publication: PublicationChange | None = None,
    ) -> bool:
        """Write the change with its events and files, in one transaction; removing a preview
        removes its project's files too. Nothing and False if the preview, or a fact that the change
        was decided from, has changed."""

    async def touch(self, preview: Preview, *, last_checked: datetime) -> None:
        """Record when the provider last reported the sandbox, unless the preview has changed or a
        later time is recorded. Not a change of state."""

    async def erase_deleted(self) -> None:
        """Make deleted data unreadable in the engine's files, as far as the engine supports
        that."""

    async def count_files(self, project_id: str) -> int: ...

    async def files(
        self,
        project_id: str,
        *,
        version: int | None = None,
        paths: Collection[str] | None = None,
    ) -> Sequence[ProjectFile]:
        """Those of a version that is kept, or the current ones; all, or those at these paths.
        Ordered by path."""

    async def entries(self, project_id: str, *, version: int | None = None) -> Mapping[str, Entry]:
        """The same by path, without contents."""

    async def versions(self, project_id: str) -> Sequence[Version]:
        """Those that can be read, newest first."""

    async def publication(self, project_id: str) -> Publication | None: ...

    async def publish_attempt(self, project_id: str) -> PublishAttempt | None:
        """The last one, unless it led to a publication."""

    async def write_publish_attempt(
        self, project_id: str, attempt: PublishAttempt | None, *, instead_of: str | None
    ) -> bool:
        """In place of the one with this id, or of none. Nothing and False if there is another. Not
        a change of state."""

    async def project_of_domain(self, domain: str) -> str | None:
        """The project that is published there. No two are."""

    async def published(self, project_id: str, paths: Collection[str]) -> Sequence[ProjectFile]:
        """The published files at these paths."""

    async def changes_since(
        self, project_id: str, version: int
    ) -> tuple[Mapping[str, bytes], Sequence[str], int]:
        """The files written and those deleted after this version, and the current version."""


@dataclass(frozen=True, slots=True)
class PreviewSandbox:
    """A running sandbox, as the provider reports it. Times are UTC; the end is the real one."""

    sandbox_id: str
    preview_url: str
    start_time: datetime
    end_time: datetime
    attempt: str


PHASES = ("installing", "starting", "running", "failed")


@dataclass(frozen=True, slots=True)
class Application:
    """What runs in a preview, as its launcher reports it."""

    phase: str
    """One of PHASES."""
    kind: str
    """What the project is: `static`, `vite`, `next`, …"""
    exit_code: int | None = None
    last_lines: Sequence[str] = ()
    """Of its log, unless it runs."""


class PreviewProvider(Protocol):
    """Creates and looks up sandboxes for previews.

    SandboxGoneError is raised only if the provider says that there is no such sandbox; any other
    failure is a ProviderTroubleError. For a sandbox of another node, every call raises
    PreviewElsewhereError and changes nothing.
    """

    def make_attempt_id(self) -> str:
        """A unique id for `create`. For a provider on several nodes, it identifies the node."""

    async def create(
        self, *, project_id: str, attempt: str, files: Mapping[str, bytes], ttl: timedelta
    ) -> PreviewSandbox:
        """Return when a new sandbox shows the files; it ends `ttl` after its start.

        - The request is sent once and never repeated.
        - Whatever is raised, a sandbox may exist: `find_attempt` shows it. Its files may be missing
          until `write_files`.
        """

    async def find_attempt(self, *, project_id: str, attempt: str) -> PreviewSandbox | None:
        """The sandbox that `create` created for this attempt, even if its response was lost. None
        means that there is none now; one that is still being created may not be visible yet. Raises
        SandboxGoneError if it has ended, and there will never be one."""

    async def get(self, sandbox_id: str) -> PreviewSandbox:
        """Raises SandboxGoneError."""

    async def end_time(self, sandbox_id: str) -> datetime:
        """The real end, UTC; hundreds may ask at once. Raises SandboxGoneError."""

    async def write_files(
        self, sandbox_id: str, *, written: Mapping[str, bytes], deleted: Collection[str]
    ) -> None:
        """Return when the sandbox shows these changes; deletions come first.

        A missing file counts as deleted. Raises SandboxGoneError.
        """

    async def application(self, sandbox_id: str) -> Application | None:
        """None if it has not reported yet. Raises SandboxGoneError."""

    async def log(self, sandbox_id: str, *, lines: int) -> Sequence[str]:
        """The last lines of its log. Raises SandboxGoneError."""

    def follow_log(self, sandbox_id: str, *, lines: int) -> AsyncIterator[str]:
        """The last lines of its log and each new one, until it ends. Raises SandboxGoneError."""

    async def kill(self, sandbox_id: str) -> None:
        """Return when the sandbox is gone, by this call or an earlier one."""

    async def close(self) -> None:
        """Release the provider's local resources. The sandboxes keep running."""
