"""The files of a fake machine: a folder of this machine, known inside as /workspace."""

import asyncio
import errno
import os
import shutil
import stat
import tarfile
import uuid
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryFile
from typing import Any

from sandyard.runtime.errors import (
    FileMissingError,
    FileRefusedError,
    InvalidArchiveError,
    StorageFullError,
    TooManyFilesError,
    UnsafePathError,
)
from sandyard.runtime.guest import RefusedError
from sandyard.runtime.guest.files import apply_changes
from sandyard.runtime.model import FileChanges, path_parts
from sandyard.runtime.sessions.model import (
    EVERYTHING,
    WORKSPACE,
    FileChange,
    FileInfo,
    FileKind,
    FileSelection,
    absolute_path,
)

_CHUNK_BYTES = 256 * 1024
_MOST_LINKS = 40
_MOST_LISTED = 10_000
_POLL_SEC = 0.02
_NEW_FILE_MODE = 0o644
_USER = "user."
_EXTRACTION: dict[str, Any] = {"filter": "tar"} if hasattr(tarfile, "tar_filter") else {}
"""Python 3.11.2 has no filters; each entry is checked before."""


class FakeFiles:
    """Outside of the workspace everything may be read and nothing changed."""

    def __init__(
        self, folder: Path, *, storage_bytes: int, require_running: Callable[[], None]
    ) -> None:
        self._folder = folder
        self._storage_bytes = storage_bytes
        self._require_running = require_running

    async def stat(self, path: str) -> FileInfo:
        with self._told():
            inside = self._resolve(path, follow=False)
            return _info(inside, self._outside(inside))

    async def list(
        self, path: str, *, depth: int = 1, selection: FileSelection = EVERYTHING
    ) -> Sequence[FileInfo]:
        with self._told():
            found = list(self._walk(self._resolve(path), depth))
        if len(found) > _MOST_LISTED and selection.limit is None:
            raise TooManyFilesError
        found.sort(key=lambda entry: entry.path.split("/"))
        if selection.after is not None:
            last = selection.after.split("/")
            found = [each for each in found if each.path.split("/") > last]
        return [_selected(each, selection.attributes) for each in found[: selection.limit]]

    def _walk(self, inside: str, depth: int) -> Iterator[FileInfo]:
        for entry in os.scandir(self._outside(inside)):
            below = f"{inside.rstrip('/')}/{entry.name}"
            yield _info(below, Path(entry.path))
            if depth > 1 and entry.is_dir(follow_symlinks=False):
                yield from self._walk(below, depth - 1)

    async def read(
        self, path: str, *, offset: int = 0, limit: int | None = None
    ) -> AsyncIterator[bytes]:
        with self._told():
            file = _regular(self._outside(self._resolve(path)))
            opened = file.open("rb")
        with opened:
            opened.seek(offset)
            left = file.stat().st_size if limit is None else limit
            while chunk := opened.read(min(_CHUNK_BYTES, left)):
                left -= len(chunk)
                yield chunk
                self._require_running()

    async def write(
        self, path: str, content: AsyncIterator[bytes], *, mode: int | None = None
    ) -> FileInfo:
        with self._told():
            inside = self._resolve(path)
            file = self._changeable(inside)
            if file.exists():
                _regular(file)
            file.parent.mkdir(parents=True, exist_ok=True)
            part = file.with_name(f".{uuid.uuid4().hex}")
            try:
                await self._fill(part, content)
                part.chmod(mode if mode is not None else _mode_of(file))
                part.rename(file)
            finally:
                part.unlink(missing_ok=True)
            return _info(inside, file)

    async def set_attributes(self, path: str, attributes: Mapping[str, str]) -> FileInfo:
        with self._told():
            inside = self._resolve(path)
            file = self._changeable(inside)
            for name, value in attributes.items():
                os.setxattr(file, _USER + name, value.encode())
            return _info(inside, file)

    async def apply(self, changes: FileChanges) -> None:
        self._require_running()
        for path in (*changes.deleted, *changes.written):
            path_parts(path)
        try:
            apply_changes(str(self._folder), changes.written, changes.deleted)
        except RefusedError as error:
            raise UnsafePathError(str(error)) from error

    async def _fill(self, part: Path, content: AsyncIterator[bytes]) -> None:
        left = self._storage_bytes - self._used_bytes()
        with part.open("xb") as opened:
            async for chunk in content:
                left -= len(chunk)
                if left < 0:
                    raise StorageFullError
                opened.write(chunk)

    async def make_folder(self, path: str) -> bool:
        with self._told():
            folder = self._changeable(self._resolve(path))
            is_new = not folder.exists()
            folder.mkdir(parents=True, exist_ok=True)
            return is_new

    async def move(self, source: str, target: str) -> FileInfo:
        with self._told():
            moved = self._changeable(self._resolve(source, follow=False))
            inside = self._resolve(target, follow=False)
            placed = self._changeable(inside)
            moved.rename(placed)
            return _info(inside, placed)

    async def remove(self, path: str) -> None:
        with self._told():
            removed = self._changeable(self._resolve(path, follow=False))
            if stat.S_ISDIR(removed.lstat().st_mode):
                shutil.rmtree(removed)
            else:
                removed.unlink()

    async def read_tar(self, path: str) -> AsyncIterator[bytes]:
        with self._told(), TemporaryFile() as packed:
            folder = self._outside(self._resolve(path))
            with tarfile.open(fileobj=packed, mode="w") as archive:
                for entry in sorted(folder.iterdir()):
                    archive.add(entry, entry.name)
            packed.seek(0)
            while chunk := packed.read(_CHUNK_BYTES):
                yield chunk

    async def write_tar(self, path: str, content: AsyncIterator[bytes]) -> None:
        with self._told(), TemporaryFile() as packed:
            inside = self._resolve(path)
            folder = self._folder if inside == WORKSPACE else self._changeable(inside)
            folder.mkdir(parents=True, exist_ok=True)
            async for chunk in content:
                packed.write(chunk)
            packed.seek(0)
            try:
                with tarfile.open(fileobj=packed) as archive:
                    members = _checked(archive, folder)
                    archive.extractall(folder, members, **_EXTRACTION)  # noqa: S202
            except tarfile.TarError as error:
                raise InvalidArchiveError from error

    async def watch(
        self, path: str, *, recursive: bool = False, ready: asyncio.Event | None = None
    ) -> AsyncIterator[FileChange]:
        with self._told():
            inside = self._resolve(path)
            os.scandir(self._outside(inside)).close()
        before = self._seen(inside, recursive=recursive)
        if ready is not None:
            ready.set()
        while True:
            await asyncio.sleep(_POLL_SEC)
            self._require_running()
            after = self._seen(inside, recursive=recursive)
            for change in _changes(before, after):
                yield change
            before = after

    def _seen(self, inside: str, *, recursive: bool) -> dict[str, os.stat_result]:
        entries = self._walk(inside, 100 if recursive else 1)
        return {each.path: self._outside(each.path).lstat() for each in entries}

    def _used_bytes(self) -> int:
        return sum(file.lstat().st_size for file in self._folder.rglob("*"))

    def _resolve(self, path: str, *, follow: bool = True) -> str:
        """The path inside without links and dots; the last part's link stays unless followed."""
        waiting = list(reversed(absolute_path(path).split("/")))
        inside, links = "", 0
        while waiting:
            part = waiting.pop()
            below = f"{inside}/{part}"
            if part == "..":
                inside = inside.rpartition("/")[0]
            elif part in {"", "."}:
                continue
            elif (follow or waiting) and self._outside(below).is_symlink():
                links += 1
                if links > _MOST_LINKS:
                    raise OSError(errno.ELOOP, "too many links")
                target = str(self._outside(below).readlink())
                inside = "" if target.startswith("/") else inside
                waiting += reversed(target.split("/"))
            else:
                inside = below
        return inside or "/"

    def _outside(self, inside: str) -> Path:
        if inside == WORKSPACE or inside.startswith(f"{WORKSPACE}/"):
            return self._folder / inside.removeprefix(WORKSPACE).lstrip("/")
        return Path(inside)

    def _changeable(self, inside: str) -> Path:
        if not inside.startswith(f"{WORKSPACE}/"):
            raise FileRefusedError
        return self._outside(inside)

    @contextmanager
    def _told(self) -> Iterator[None]:
        """The system's errors, as a session tells them."""
        self._require_running()
        try:
            yield
        except ConnectionError:  # of whoever sends the content
            raise
        except FileNotFoundError as error:
            raise FileMissingError from error
        except OSError as error:
            full = error.errno in {errno.ENOSPC, errno.EDQUOT}
            raise (StorageFullError if full else FileRefusedError) from error


def _regular(file: Path) -> Path:
    if not stat.S_ISREG(file.stat().st_mode):
        raise FileRefusedError
    return file


def _mode_of(file: Path) -> int:
    return stat.S_IMODE(file.stat().st_mode) if file.exists() else _NEW_FILE_MODE


def _info(inside: str, file: Path) -> FileInfo:
    found = file.lstat()
    kind = _kind(found.st_mode)
    return FileInfo(
        path=_shown(inside),
        kind=kind,
        size_bytes=found.st_size,
        mode=stat.S_IMODE(found.st_mode),
        modified_at=found.st_mtime,
        target=_shown(str(file.readlink())) if kind == "link" else None,
        attributes={
            name.removeprefix(_USER): os.getxattr(file, name, follow_symlinks=False).decode()
            for name in os.listxattr(file, follow_symlinks=False)
            if name.startswith(_USER)
        },
    )


def _shown(path: str) -> str:
    return path.encode(errors="surrogateescape").decode(errors="replace")


def _kind(mode: int) -> FileKind:
    if stat.S_ISDIR(mode):
        return "folder"
    if stat.S_ISLNK(mode):
        return "link"
    return "file" if stat.S_ISREG(mode) else "other"


def _checked(archive: tarfile.TarFile, folder: Path) -> Iterator[tarfile.TarInfo]:
    """Links may point anywhere inside the machine; nothing is written or taken through them."""
    for entry in archive:
        paths = (entry.name, entry.linkname) if entry.islnk() else (entry.name,)
        for path in paths:
            is_inside = Path(os.path.realpath(folder / path)).is_relative_to(folder.resolve())
            if path.startswith("/") or not is_inside or entry.isdev():
                raise tarfile.TarError(f"{entry.name} would leave the folder")
        yield entry


def _changes(
    before: dict[str, os.stat_result], after: dict[str, os.stat_result]
) -> Iterator[FileChange]:
    kept = {found.st_ino for path, found in after.items() if path not in before}
    for path in before.keys() - after.keys():
        yield FileChange(path, "renamed" if before[path].st_ino in kept else "removed")
    for path, found in after.items():
        if path not in before:
            yield FileChange(path, "created")
        if path not in before or before[path].st_mtime_ns != found.st_mtime_ns:
            yield FileChange(path, "written")
        elif before[path].st_mode != found.st_mode:
            yield FileChange(path, "attributes")


def _selected(info: FileInfo, prefix: str | None) -> FileInfo:
    """With the attributes whose names begin so, or with none."""
    chosen = {
        name: value
        for name, value in info.attributes.items()
        if prefix is not None and name.startswith(prefix)
    }
    return replace(info, attributes=chosen)
