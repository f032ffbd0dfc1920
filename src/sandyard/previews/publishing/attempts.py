"""Building or starting a version in a sandbox, until it can be published."""

import asyncio
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import timedelta
from tempfile import SpooledTemporaryFile

from sandyard.kit.clock import Clock, utc_time
from sandyard.kit.errors import UnavailableError
from sandyard.kit.ids import holder_id
from sandyard.previews.archives import most_bytes, unpack
from sandyard.previews.errors import PublishingBusyError
from sandyard.previews.files import FileLimits, PublishAttempt, PublishMode, check_path
from sandyard.previews.ports import PreviewStore
from sandyard.previews.publishing.ports import PublishSandboxes
from sandyard.runtime.errors import FileMissingError

LONGEST = timedelta(minutes=20)
"""Of an attempt, with the installation of its packages."""
_OUTPUTS = ("dist", "build", "out")
"""The folders of a build, in this order, if none is named."""
_POLL_SEC = 0.5
_IN_MEMORY = 1 << 20


class BuildFailedError(Exception):
    """Its message says what failed, its lines are the last ones of the log."""

    def __init__(self, reason: str, lines: Sequence[str] = ()) -> None:
        super().__init__(reason)
        self.lines = lines


@dataclass(frozen=True, slots=True)
class PublishAttempts:
    store: PreviewStore
    sandboxes: PublishSandboxes
    clock: Clock
    limits: FileLimits

    async def begin(self, project_id: str, version: int, mode: PublishMode) -> PublishAttempt:
        """One at a time for a project. Raises PublishingBusyError."""
        now = utc_time(self.clock.now())
        before = await self.store.publish_attempt(project_id)
        if before is not None and before.failed(now) is None:
            raise PublishingBusyError
        attempt = PublishAttempt(holder_id(), version, mode, now + LONGEST)
        replaced = None if before is None else before.id
        if not await self.store.write_publish_attempt(project_id, attempt, instead_of=replaced):
            raise PublishingBusyError
        return attempt

    async def require_current(self, project_id: str, attempt: PublishAttempt) -> None:
        """Raises BuildFailedError if it was called off, or is over."""
        current = await self.store.publish_attempt(project_id)
        is_over = utc_time(self.clock.now()) >= attempt.until
        if current is None or current.id != attempt.id or is_over:
            raise BuildFailedError("it took too long" if is_over else "it was called off")

    async def until_ready(self, sandbox_id: str, attempt: PublishAttempt, account_id: str) -> None:
        """Return when it is built, or runs. Raises BuildFailedError."""
        while utc_time(self.clock.now()) < attempt.until:
            found = None
            with suppress(UnavailableError):  # asked again
                found = await self.sandboxes.application(sandbox_id, account_id=account_id)
            if found is not None and found.phase == "running":
                return
            if found is not None and found.phase == "failed":
                raise BuildFailedError("it has failed", found.last_lines)
            await asyncio.sleep(_POLL_SEC)
        raise BuildFailedError("it took too long")

    async def built_files(
        self, sandbox_id: str, root: str, account_id: str
    ) -> tuple[str, Mapping[str, bytes]]:
        """The folder that was built, and what is in it. Raises BuildFailedError, FilesLimitError
        and UnsafeFilePathError."""
        for folder in (root,) if root else _OUTPUTS:
            with SpooledTemporaryFile(_IN_MEMORY) as packed:
                size = 0
                try:
                    pieces = self.sandboxes.read_tar(sandbox_id, folder, account_id=account_id)
                    async for piece in pieces:
                        size += packed.write(piece)
                        if size > most_bytes(self.limits):
                            raise BuildFailedError("what was built is too large")
                except FileMissingError:
                    continue
                packed.seek(0)
                files = await asyncio.to_thread(unpack, packed, self.limits)
                for path in files:
                    check_path(path)
                return folder, files
        raise BuildFailedError(f"the build made no folder {root or ', '.join(_OUTPUTS)}")
