"""Archives, one file each, from which sandboxes and builds start.

One is a tar of the files of a workspace, or a snapshot of all that a machine changed. It is on this
node's disk, and in the store of files if there is one; what only the store has is fetched from it.
"""

import asyncio
import os
import re
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import ParamSpec, TypeVar

from sandyard.kit.errors import BodyTooLargeError
from sandyard.runtime.errors import RuntimeUnavailableError, SnapshotNotFoundError
from sandyard.runtime.model import Snapshot
from sandyard.runtime.records.disk_reserve import DiskReserve
from sandyard.runtime.records.run_folder import entries, exists, sync_folder
from sandyard.runtime.store.layers import NoLayers
from sandyard.runtime.store.model import Kind

P = ParamSpec("P")
T = TypeVar("T")
_TAR, _PACKED = _SUFFIXES = (".tar", ".snapshot")
_DRAFT = ".new"
_ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,199}")
_PIECE_BYTES = 1 << 20


class ArchiveFolder:
    """An archive is complete or absent."""

    def __init__(
        self,
        path: Path,
        reserve: DiskReserve | None = None,
        layers: NoLayers | None = None,
        kind: Kind = "archives",
    ) -> None:
        self._path = path
        self._layers = layers or NoLayers()
        self._kind: Kind = kind
        self.reserve = reserve or DiskReserve(path)

    async def write(
        self, archive_id: str, content: AsyncIterator[bytes], *, most_bytes: int | None = None
    ) -> Snapshot:
        """Replaces one of the same id. Raises BodyTooLargeError, DiskFullError,
        StoreUnavailableError and the errors of `content`."""
        target = self.path_of(archive_id, _PACKED if self._kind == "snapshots" else _TAR)
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
        return await self.store(archive_id)

    async def store(self, archive_id: str, *, timeout_sec: float | None = None) -> Snapshot:
        """Return when the store has this file too. Raises SnapshotNotFoundError,
        StoreUnavailableError, and StoringError after the timeout: then it is here alone."""
        path = await _in_thread(self._use, archive_id)
        if path is None:
            raise SnapshotNotFoundError
        await self._layers.put(self._kind, path.name, path, timeout_sec=timeout_sec)
        return Snapshot(archive_id, path.stat().st_size, path.stat().st_mtime)

    async def require(self, archive_id: str) -> Path:
        """Its path, with the file fetched from the store if it is not here. Raises
        SnapshotNotFoundError, StoreUnavailableError, ObjectDamagedError."""
        if (path := await _in_thread(self._use, archive_id)) is not None:
            return path
        for path in self._paths_of(archive_id):
            if await self._layers.fetch(self._kind, path.name, path):
                return path
        raise SnapshotNotFoundError

    async def _fill(
        self, draft: Path, content: AsyncIterator[bytes], most_bytes: int | None
    ) -> None:
        size = 0
        with await asyncio.to_thread(draft.open, "wb") as file:
            async for piece in content:
                size += len(piece)
                if most_bytes is not None and size > most_bytes:
                    raise BodyTooLargeError
                await asyncio.to_thread(self.reserve.require)
                await asyncio.to_thread(file.write, piece)
            await asyncio.to_thread(file.flush)
            await asyncio.to_thread(os.fsync, file.fileno())

    async def read(self, archive_id: str) -> AsyncIterator[bytes]:
        path = await self.require(archive_id)
        with await asyncio.to_thread(path.open, "rb") as file:
            while piece := await asyncio.to_thread(file.read, _PIECE_BYTES):
                yield piece

    async def place(self, archive_id: str) -> Path:
        """The path to which a machine packs its snapshot. Raises SnapshotNotFoundError."""
        path = self.path_of(archive_id)
        await asyncio.to_thread(self._path.mkdir, parents=True, exist_ok=True, mode=0o700)
        return path

    def find_packed(self, archive_id: str | None) -> Path | None:
        """The snapshot of a machine, if the archive is one."""
        if archive_id is None:
            return None
        path = self.path_of(archive_id)
        return path if exists(path) else None

    async def find(self, archive_id: str) -> Snapshot | None:
        for path in self._paths_of(archive_id):
            if (here := await _in_thread(_snapshot, path)) is not None:
                return here
        return await self.find_stored(archive_id)

    async def find_stored(self, archive_id: str) -> Snapshot | None:
        """As all nodes see it."""
        for path in self._paths_of(archive_id):
            if (stored := await self._layers.find(self._kind, path.name)) is not None:
                return replace(stored, id=archive_id)
        return None

    async def list_all(self) -> Sequence[Snapshot]:
        """Those in the store too."""
        found = [*await self.list_stored(), *await _in_thread(self._list_here)]
        return sorted({each.id: each for each in found}.values(), key=lambda each: each.id)

    async def list_stored(self) -> Sequence[Snapshot]:
        stored = await self._layers.list_all(self._kind)
        return [replace(each, id=Path(each.id).stem) for each in stored]

    async def bytes_of(self, account_id: str) -> int:
        """Of the archives on this node whose ids begin with the account's."""
        found = await _in_thread(self._list_here)
        return sum(each.size_bytes for each in found if each.id.startswith(f"{account_id}-"))

    async def delete(self, archive_id: str) -> None:
        for path in self._paths_of(archive_id):
            await _in_thread(path.unlink, missing_ok=True)
            await self._layers.delete(self._kind, path.name)

    def path_of(self, archive_id: str, suffix: str = _PACKED) -> Path:
        if not _ID.fullmatch(archive_id):
            raise SnapshotNotFoundError
        return self._path / f"{archive_id}{suffix}"

    def _paths_of(self, archive_id: str) -> list[Path]:
        """Where it may be; nowhere, if that is not an id."""
        suffixes = (_PACKED,) if self._kind == "snapshots" else _SUFFIXES
        is_id = _ID.fullmatch(archive_id) is not None
        return [self.path_of(archive_id, suffix) for suffix in suffixes] if is_id else []

    def _list_here(self) -> list[Snapshot]:
        paths = [path for path in entries(self._path) if path.suffix in _SUFFIXES]
        return [each for each in map(_snapshot, paths) if each is not None]

    def _use(self, archive_id: str) -> Path | None:
        """Its path, if it is here; its use is noted, so that it stays."""
        for path in self._paths_of(archive_id):
            with suppress(FileNotFoundError):
                os.utime(path)
                return path
        return None


def _snapshot(path: Path) -> Snapshot | None:
    try:
        found = path.stat()
    except FileNotFoundError:
        return None
    return Snapshot(path.stem, found.st_size, found.st_mtime)


async def _in_thread(work: Callable[P, T], *arguments: P.args, **named: P.kwargs) -> T:
    """A folder that can't be used is an outage, never reported as a missing file."""
    try:
        return await asyncio.to_thread(work, *arguments, **named)
    except OSError as error:
        raise RuntimeUnavailableError(reason=str(error)) from error
