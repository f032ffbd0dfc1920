"""What Previews need of an engine. Every method raises UnavailableError when it is away."""

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Protocol

from sandyard.previews.model import (
    Attempt,
    ChangeSet,
    FileLimits,
    Preview,
    ProjectFile,
    SandboxInfo,
)


class PreviewStore(Protocol):
    """Projects with what is known of their sandboxes, and their files.

    What is known changes by compare-and-set alone: on condition that it is still what the change
    was decided from.
    """

    async def find(self, project_id: str, *, account_id: str) -> Preview | None:
        """The project, if it is this account's and not deleted."""
        ...

    async def begin(
        self, seen: Preview, attempt: Attempt, *, running_limit: int, now: datetime
    ) -> bool:
        """Record the attempt, if info and attempt are still as seen. Raises PreviewsLimitError if
        the account has that many others running or being made."""
        ...

    async def record(self, seen: Preview, info: SandboxInfo, *, attempt_id: str) -> bool:
        """Record the sandbox of this attempt and end it, if it still stands."""
        ...

    async def give_up(self, seen: Preview, *, attempt_id: str) -> bool:
        """End an attempt that made nothing, if it still stands."""
        ...

    async def shorten(self, seen: Preview, attempt: Attempt) -> bool:
        """Let an attempt run out sooner, if it still stands."""
        ...

    async def update(self, seen: Preview, info: SandboxInfo) -> bool:
        """Record what the provider told, if what was known is still as seen."""
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

    async def change_files(
        self, project_id: str, changes: ChangeSet, *, limits: FileLimits, now: datetime
    ) -> int:
        """The new version; the same if nothing is different. All of it or nothing."""
        ...


class KnownAttempts(Protocol):
    async def known_attempts(self, attempts: Sequence[str]) -> set[str]:
        """Those of the attempts that some project has, recorded or under way; a deleted one has
        none."""
        ...


class DeletedProjects(Protocol):
    async def running_of_deleted(self, *, now: datetime) -> Sequence[tuple[str, SandboxInfo]]:
        """The deleted projects whose sandbox has not come to its end, and the sandbox."""
        ...

    async def record_end(self, project_id: str, info: SandboxInfo) -> None:
        """Note the end of a deleted project's sandbox."""
        ...
