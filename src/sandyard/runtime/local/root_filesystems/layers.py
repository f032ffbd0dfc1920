"""Unpacks the layers of a root file system into a folder, and nothing outside of it.

A path is followed inside the folder as if that were `/`, link by link, so that no link leads out.
Devices are left out, and so are the rights of set-uid programs: a machine has devices of its own
and gains no rights.
"""

import os
import shutil
import stat
import tarfile
from pathlib import Path
from typing import IO

from sandyard.runtime.errors import EnvironmentRefusedError

MOST_BYTES = 32 << 30
MOST_ENTRIES = 2_000_000
_MOST_LINKS = 40
_WHITEOUT = ".wh."
_OPAQUE = ".wh..wh..opq"
_CHUNK_BYTES = 1 << 20


class LayerUnpacker:
    def __init__(self, root: Path, *, most_bytes: int = MOST_BYTES) -> None:
        self._root = root
        self._bytes_left = most_bytes
        self._entries_left = MOST_ENTRIES

    def unpack(self, content: IO[bytes]) -> None:
        """Unpack one layer over the previous ones. Raises EnvironmentRefusedError."""
        written: set[Path] = set()
        try:
            with tarfile.open(fileobj=content, mode="r|") as archive:
                for member in archive:
                    self._add(archive, member, written)
        except (tarfile.TarError, EOFError) as error:
            raise EnvironmentRefusedError(f"A layer is not a tar archive: {error}") from error

    def _add(self, archive: tarfile.TarFile, member: tarfile.TarInfo, written: set[Path]) -> None:
        self._entries_left -= 1
        if self._entries_left < 0:
            raise EnvironmentRefusedError("It has too many files.")
        parts = _parts(member.name)
        if not parts:
            return
        parent = self._folder_at(parts[:-1])
        name = parts[-1]
        if name == _OPAQUE:
            self._empty(parent, written)
        elif name.startswith(_WHITEOUT):
            remove(parent / _plain(name.removeprefix(_WHITEOUT)))
        else:
            self._write(archive, member, parent / name)
            written.add(parent / name)
            written.update(parent.parents)
            written.add(parent)

    def _write(self, archive: tarfile.TarFile, member: tarfile.TarInfo, path: Path) -> None:
        mode = member.mode & 0o777
        if member.isdir():
            if path.is_symlink() or not path.is_dir():
                remove(path)
                path.mkdir()
            path.chmod(mode | 0o700)
        elif member.issym():
            remove(path)
            path.symlink_to(member.linkname)
        elif member.islnk():
            self._link(member, path)
        elif member.isreg():
            remove(path)
            self._copy(archive, member, path)
            path.chmod(mode)

    def _link(self, member: tarfile.TarInfo, path: Path) -> None:
        """Hard-link another file of the same root; other targets are refused."""
        parts = _parts(member.linkname)
        target = self._folder_at(parts[:-1]) / parts[-1] if parts else self._root
        if not target.is_symlink() and not target.is_file():
            raise EnvironmentRefusedError(f"{member.name!r} is a link to a missing file.")
        if target != path:
            remove(path)
            os.link(target, path, follow_symlinks=False)

    def _copy(self, archive: tarfile.TarFile, member: tarfile.TarInfo, path: Path) -> None:
        self._bytes_left -= member.size
        if self._bytes_left < 0:
            raise EnvironmentRefusedError("It is too large.")
        source = archive.extractfile(member)
        if source is None:
            raise EnvironmentRefusedError(f"{member.name!r} has no content.")
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW
        with os.fdopen(os.open(path, flags, 0o600), "wb") as file:
            shutil.copyfileobj(source, file, _CHUNK_BYTES)

    def _folder_at(self, parts: list[str]) -> Path:
        """The folder at this path, created if missing; links are resolved inside the root."""
        waiting, links = list(reversed(parts)), 0
        here = self._root
        while waiting:
            name = waiting.pop()
            if name == "..":
                here = here if here == self._root else here.parent
                continue
            there = here / name
            if there.is_symlink():
                links += 1
                if links > _MOST_LINKS:
                    raise EnvironmentRefusedError("It has circular links.")
                target = str(there.readlink())
                here = self._root if target.startswith("/") else here
                waiting += [part for part in reversed(target.split("/")) if part not in ("", ".")]
                continue
            if not there.is_dir():
                remove(there)
                there.mkdir()
            here = there
        return here

    def _empty(self, folder: Path, written: set[Path]) -> None:
        """Remove what earlier layers left there."""
        for path in list(folder.iterdir()):
            if path not in written:
                remove(path)
            elif path.is_dir() and not path.is_symlink():
                self._empty(path, written)


def _parts(name: str) -> list[str]:
    parts = [part for part in name.split("/") if part not in ("", ".")]
    if ".." in parts or "\0" in name:
        raise EnvironmentRefusedError(f"{name!r} would leave its folder.")
    return parts


def _plain(name: str) -> str:
    if name in ("", ".", ".."):
        raise EnvironmentRefusedError("A layer has an invalid whiteout.")
    return name


def remove(path: Path) -> None:
    try:
        mode = path.lstat().st_mode
    except (FileNotFoundError, NotADirectoryError):
        return
    if stat.S_ISDIR(mode):
        shutil.rmtree(path)
    else:
        path.unlink()
