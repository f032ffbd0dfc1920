"""What Previews need from whatever makes their sandboxes, as promises."""

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Protocol

from sandyard.runtime.session_ports import Ports


@dataclass(frozen=True, slots=True)
class PreviewSandbox:
    """What a provider knows of a sandbox that runs. The times are UTC, the end is the real one."""

    sandbox_id: str
    preview_url: str
    start_time: datetime
    end_time: datetime
    attempt: str


class ReachablePreviews(Protocol):
    """What a provider offers whose sandboxes are reached through the gateway."""

    async def ports(self, sandbox_id: str) -> Ports:
        """Raises SandboxGoneError."""
        ...


class PreviewProvider(Protocol):
    """Makes and knows sandboxes for previews.

    Gone is told apart from trouble: SandboxGoneError only if the provider says that there is no
    such sandbox; everything else that is no answer is a ProviderTroubleError. What another node
    has is neither: every call about it raises PreviewElsewhereError and changes nothing.
    """

    def make_attempt_id(self) -> str:
        """An id for `create`, unlike all others. It tells a provider on several nodes which of them
        was asked."""
        ...

    async def create(
        self, *, project_id: str, attempt: str, files: Mapping[str, bytes], ttl: timedelta
    ) -> PreviewSandbox:
        """Return when a new sandbox shows the files; it ends `ttl` after its start.

        - The order is given once and never sent again by itself.
        - Whatever is raised, there may be a sandbox now: `find_attempt` tells. Its files may be
          missing until `write_files`.
        """
        ...

    async def find_attempt(self, *, project_id: str, attempt: str) -> PreviewSandbox | None:
        """The sandbox that `create` made for this attempt, also when its answer was lost.

        None means that there is none now; one that is still being made may not be seen yet.
        """
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
        """Return when the sandbox shows its files like this; deletions come first.

        A file that is not there is as good as deleted. Raises SandboxGoneError.
        """
        ...

    async def extend(self, sandbox_id: str, *, ttl: timedelta) -> None:
        """Let the sandbox end `ttl` from now, be it later or sooner. Raises SandboxGoneError."""
        ...

    async def kill(self, sandbox_id: str) -> None:
        """Return when the sandbox is gone, by this call or before it."""
        ...

    async def close(self) -> None:
        """Let go of what the provider holds here. The sandboxes go on."""
        ...
