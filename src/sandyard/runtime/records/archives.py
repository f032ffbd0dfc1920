"""Archives on this node's disk, one file each, from which sandboxes and builds start.

One is a tar of the files of a workspace, or a snapshot of all that a machine changed.
"""

import asyncio
import os
import re
from collections.abc import AsyncIterator, Sequence
from contextlib import suppress
from pathlib import Path

from sandyard.kit.errors import BodyTooLargeError
from sandyard.runtime.errors import RuntimeUnavailableError, SnapshotNotFoundError
from sandyard.runtime.model import Snapshot
from sandyard.runtime.records.disk_reserve import DiskReserve
from sandyard.runtime.records.run_folder import entries, sync_folder

_SUFFIX = ".tar"
_PACKED = ".snapshot"
_DRAFT = ".new"
_ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,127}")
_PIECE_BYTES = 1 << 20


class ArchiveFolder:
    """An archive is complete or absent."""

    def __init__(self, path: Path, reserve: DiskReserve | None = None) -> None:
        self._path = path
        self._reserve = reserve or DiskReserve(path)

    async def write(
        self, archive_id: str, content: AsyncIterator[bytes], *, most_bytes: int | None = None
    ) -> Snapshot:
        """Replaces one of the same id. Raises BodyTooLargeError, DiskFullError and the errors
        of `content`."""
        target = self._path_of(archive_id)
        draft = target.with_suffix(f"{_DRAFT}-{os.urandom(6).hex()}")
        try:
            await asyncio.to_thread(self._path.mkdir, parents=True, exist_ok=True, mode=0o700)
            await self._fill(draft, content, most_bytes)
            await asyncio.to_thread(draft.replace, target)
            await asyncio.to_thread(sync_folder, self._path)
        except OSError as error:
            raise RuntimeUnavailableError(reason=str(error)) from error
        finally:
            draft.unlink(missing_ok=True)
        return self.get(archive_id)

    async def _fill(
        self, draft: Path, content: AsyncIterator[bytes], most_bytes: int | None
    ) -> None:
        size = 0
        with await asyncio.to_thread(draft.open, "wb") as file:
            async for piece in content:
                size += len(piece)
                if most_bytes is not None and size > most_bytes:
                    raise BodyTooLargeError
                await asyncio.to_thread(self._reserve.require)
                await asyncio.to_thread(file.write, piece)
            await asyncio.to_thread(file.flush)
            await asyncio.to_thread(os.fsync, file.fileno())

    async def read(self, archive_id: str) -> AsyncIterator[bytes]:
        """Raises SnapshotNotFoundError."""
        self.get(archive_id)
        with await asyncio.to_thread(self._path_of(archive_id).open, "rb") as file:
            while piece := await asyncio.to_thread(file.read, _PIECE_BYTES):
                yield piece

    async def place(self, archive_id: str) -> Path:
        """The path to which a machine packs its snapshot. Raises SnapshotNotFoundError."""
        path = self._path_of(archive_id, _PACKED)
        await asyncio.to_thread(self._path.mkdir, parents=True, exist_ok=True, mode=0o700)
        return path

    def find_packed(self, archive_id: str | None) -> Path | None:
        """The snapshot of a machine, if the archive is one."""
        if archive_id is None:
            return None
        path = self._path_of(archive_id, _PACKED)
        return path if path.exists() else None

    def get(self, archive_id: str) -> Snapshot:
        """Raises SnapshotNotFoundError."""
        found = self.find(archive_id)
        if found is None:
            raise SnapshotNotFoundError
        return found

    def find(self, archive_id: str) -> Snapshot | None:
        for suffix in (_PACKED, _SUFFIX):
            with suppress(FileNotFoundError):
                stat = self._path_of(archive_id, suffix).stat()
                return Snapshot(archive_id, stat.st_size, stat.st_mtime)
        return None

    def list_all(self) -> Sequence[Snapshot]:
        named = [each for each in entries(self._path) if each.suffix in (_PACKED, _SUFFIX)]
        found = [self.find(archive_id) for archive_id in sorted({each.stem for each in named})]
        return [each for each in found if each is not None]

    async def bytes_of(self, account_id: str) -> int:
        """Of the archives whose ids begin with the account's."""
        found = await asyncio.to_thread(self.list_all)
        return sum(each.size_bytes for each in found if each.id.startswith(f"{account_id}-"))

    def delete(self, archive_id: str) -> None:
        for suffix in (_PACKED, _SUFFIX):
            self._path_of(archive_id, suffix).unlink(missing_ok=True)

    def _path_of(self, archive_id: str, suffix: str = _SUFFIX) -> Path:
        if not _ID.fullmatch(archive_id):
            raise SnapshotNotFoundError
        return self._path / f"{archive_id}{suffix}"
