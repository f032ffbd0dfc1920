"""The ports of Previews to the providers of their sandboxes."""

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Protocol

from sandyard.runtime.sessions.ports import Ports


@dataclass(frozen=True, slots=True)
class PreviewSandbox:
    """A running sandbox, as the provider reports it. Times are UTC; the end is the real one."""

    sandbox_id: str
    preview_url: str
    start_time: datetime
    end_time: datetime
    attempt: str


class ReachablePreviews(Protocol):
    """For providers whose sandboxes are reached through the gateway."""

    async def ports(self, sandbox_id: str) -> Ports:
        """Raises SandboxGoneError."""
        ...


class PreviewProvider(Protocol):
    """Creates and looks up sandboxes for previews.

    SandboxGoneError is raised only if the provider says that there is no such sandbox; any other
    failure is a ProviderTroubleError. For a sandbox of another node, every call raises
    PreviewElsewhereError and changes nothing.
    """

    def make_attempt_id(self) -> str:
        """A unique id for `create`. For a provider on several nodes, it identifies the node."""
        ...

    async def create(
        self, *, project_id: str, attempt: str, files: Mapping[str, bytes], ttl: timedelta
    ) -> PreviewSandbox:
        """Return when a new sandbox shows the files; it ends `ttl` after its start.

        - The request is sent once and never repeated.
        - Whatever is raised, a sandbox may exist: `find_attempt` shows it. Its files may be missing
          until `write_files`.
        """
        ...

    async def find_attempt(self, *, project_id: str, attempt: str) -> PreviewSandbox | None:
        """The sandbox that `create` created for this attempt, even if its response was lost. None
        means that there is none now; one that is still being created may not be visible yet."""
        ...

    async def get(self, sandbox_id: str) -> PreviewSandbox:
        """Raises SandboxGoneError."""
        ...

    async def end_time(self, sandbox_id: str) -> datetime:
        """The real end, UTC; hundreds may ask at once. Raises SandboxGoneError."""
        ...

    async def write_files(
        self, sandbox_id: str, *, written: Mapping[str, bytes], deleted: Collection[str]
    ) -> None:
        """Return when the sandbox shows these changes; deletions come first.

        A missing file counts as deleted. Raises SandboxGoneError.
        """
        ...

    async def extend(self, sandbox_id: str, *, ttl: timedelta) -> None:
        """Let the sandbox end `ttl` from now, whether later or sooner. Raises SandboxGoneError."""
        ...

    async def kill(self, sandbox_id: str) -> None:
        """Return when the sandbox is gone, by this call or an earlier one."""
        ...

    async def close(self) -> None:
        """Release the provider's local resources. The sandboxes keep running."""
        ...
