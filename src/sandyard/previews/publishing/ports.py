"""The port of published projects to the sandboxes that build and run them."""

from collections.abc import AsyncIterator, Mapping
from typing import Protocol

from sandyard.previews.files import PublishMode
from sandyard.previews.ports import Application


class PublishSandboxes(Protocol):
    """Sandboxes of an account, billed to it as any other. Raises their errors."""

    async def start(
        self,
        project_id: str,
        files: Mapping[str, bytes],
        *,
        mode: PublishMode,
        account_id: str,
        actor: str,
    ) -> str:
        """The id of a sandbox in which the launcher works on these files. One that builds ends by
        itself; one that runs is started by requests to it, and stops when there are none."""

    async def application(self, sandbox_id: str, *, account_id: str) -> Application | None:
        """What the launcher reports; None if it has not yet."""

    def read_tar(self, sandbox_id: str, folder: str, *, account_id: str) -> AsyncIterator[bytes]:
        """A folder of the project's. Raises FileMissingError."""

    async def end(self, sandbox_id: str, *, account_id: str, actor: str) -> None:
        """Remove it with its files; nothing if it is gone."""
