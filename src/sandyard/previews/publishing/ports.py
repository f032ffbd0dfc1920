"""The port of published projects to the sandboxes that build and run them."""

from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from sandyard.previews.files import PublishAttempt
from sandyard.previews.ports import Application


@dataclass(frozen=True, slots=True)
class PublishSandbox:
    sandbox_id: str
    account_id: str
    project_id: str
    attempt_id: str


class PublishSandboxes(Protocol):
    """Sandboxes of an account, billed to it as any other. Raises their errors."""

    async def start(
        self,
        project_id: str,
        attempt: PublishAttempt,
        files: Mapping[str, bytes],
        *,
        account_id: str,
        actor: str,
    ) -> str:
        """The id of a sandbox in which the launcher works on these files. One that builds ends by
        itself; one that runs is started by requests to it, and stops when there are none."""

    async def list(self) -> Sequence[PublishSandbox]:
        """Those of all accounts that can be ended from here."""

    async def application(self, sandbox_id: str, *, account_id: str) -> Application | None:
        """What the launcher reports; None if it has not yet."""

    def read_tar(self, sandbox_id: str, folder: str, *, account_id: str) -> AsyncIterator[bytes]:
        """A folder of the project's. Raises FileMissingError."""

    async def end(self, sandbox_id: str, *, account_id: str, actor: str) -> None:
        """Remove it with its files; nothing if it is gone."""
