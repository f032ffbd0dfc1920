"""Unpacks layers of images into a folder, from which nothing escapes."""

import errno
import os
import shutil
import tarfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO

from sandyard.runtime.images.errors import ImageRefusedError

MOST_BYTES = 32 << 30
MOST_ENTRIES = 1_000_000
_MOST_LINKS = 40
_MOST_HEADER_BYTES = 128 << 10
"""Of one header; a chain of them is read into memory whole."""
_MOST_ID = 65_535
_WHITEOUT = ".wh."
_OPAQUE = ".wh..wh..opq"
_CHUNK_BYTES = 1 << 20
_SPACE_EVERY = 1000
"""How many files and folders are made between two looks at the disk."""
_DEVICES = "dev"
_OF_DISK = (errno.ENOSPC, errno.EDQUOT, errno.EIO)
_HEADERS = (
    *(tarfile.XHDTYPE, tarfile.XGLTYPE, tarfile.SOLARIS_XHDTYPE),
    *(tarfile.GNUTYPE_LONGNAME, tarfile.GNUTYPE_LONGLINK),
)


class _Entry(tarfile.TarInfo):
    def _proc_member(self, archive: tarfile.TarFile) -> tarfile.TarInfo | None:
        """Names and attributes are read into memory."""
        if self.type in _HEADERS and self.size > _MOST_HEADER_BYTES:
            raise ImageRefusedError("A file in a layer has a name or attributes that are too long.")
        return super()._proc_member(archive)  # type: ignore[misc,no-any-return]


@contextmanager
def entries_of(content: IO[bytes]) -> Iterator[tarfile.TarFile]:
    """The archive, read once from its beginning to its end. Raises ImageRefusedError."""
    try:
        with tarfile.open(fileobj=content, mode="r|", tarinfo=_Entry) as archive:
            yield archive
    except (tarfile.TarError, EOFError, ValueError, RecursionError) as error:
        raise ImageRefusedError(f"This is not a tar archive: {error}") from error


class Unpacker:
    """Owners are kept where this process may set them. Extended attributes and the bits by which a
    program gets another user are not; devices and pipes are left out of `/dev`, and refused
    elsewhere."""

    def __init__(
        self,
        root: Path,
        *,
        most_bytes: int = MOST_BYTES,
        require_space: Callable[[], None] = lambda: None,
    ) -> None:
        """`require_space` is called before each megabyte: it may end the work by an error."""
        self.root = root
        self._require_space = require_space
        self._bytes_left = most_bytes
        self._entries_left = MOST_ENTRIES
        self._sets_owners = os.geteuid() == 0

    def unpack(self, content: IO[bytes]) -> None:
        """Unpack one layer over the previous ones. Raises ImageRefusedError, and the errors of
        `require_space`."""
        written: set[Path] = set()
        try:
            with entries_of(content) as archive:
                for member in archive:
                    self._add(archive, member, written)
                    archive.members = []  # type: ignore[attr-defined] # it would keep them all
        except OSError as error:
            if error.errno in _OF_DISK:
                raise
            raise ImageRefusedError(f"A layer can't be unpacked: {error.strerror}.") from error

    def _count_entry(self) -> None:
        if self._entries_left % _SPACE_EVERY == 0:
            self._require_space()
        self._entries_left -= 1
        if self._entries_left < 0:
            raise ImageRefusedError("It has too many files.")

    def _add(self, archive: tarfile.TarFile, member: tarfile.TarInfo, written: set[Path]) -> None:
        self._count_entry()
        self._bytes_left -= member.size
        if self._bytes_left < 0:
            raise ImageRefusedError("It is too large.")
        parts = parts_of(member.name)
        if not parts:
            return
        parent = self.folder_at(parts[:-1])
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
            path.chmod(mode | 0o700 | (member.mode & 0o1000))
        elif member.issym():
            remove(path)
            path.symlink_to(member.linkname)
        elif member.islnk():
            self._link(member, path)
            return
        elif member.isreg():
            remove(path)
            self._copy(archive, member, path)
            path.chmod(mode)
        elif path.relative_to(self.root).parts[0] != _DEVICES:
            raise ImageRefusedError(f"{member.name!r} is a device or a pipe.")
        else:
            return
        if self._sets_owners:
            owner, group = (min(max(each, 0), _MOST_ID) for each in (member.uid, member.gid))
            os.chown(path, owner, group, follow_symlinks=False)

    def _link(self, member: tarfile.TarInfo, path: Path) -> None:
        """Hard-link another file of the same root; other targets are refused."""
        parts = parts_of(member.linkname)
        target = self.folder_at(parts[:-1]) / parts[-1] if parts else self.root
        if not target.is_symlink() and not target.is_file():
            raise ImageRefusedError(f"{member.name!r} is a link to a missing file.")
        if target != path:
            remove(path)
            os.link(target, path, follow_symlinks=False)

    def _copy(self, archive: tarfile.TarFile, member: tarfile.TarInfo, path: Path) -> None:
        source = archive.extractfile(member)
        if source is None:
            raise ImageRefusedError(f"{member.name!r} has no content.")
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW
        with os.fdopen(os.open(path, flags, 0o600), "wb") as file:
            while piece := source.read(_CHUNK_BYTES):
                self._require_space()
                file.write(piece)

    def folder_at(self, parts: list[str]) -> Path:
        """The folder at this path, created if missing; links are resolved inside the root."""
        waiting, links = list(reversed(parts)), 0
        here = self.root
        while waiting:
            name = waiting.pop()
            if name == "..":
                here = here if here == self.root else here.parent
                continue
            there = here / name
            if there.is_symlink():
                links += 1
                if links > _MOST_LINKS:
                    raise ImageRefusedError("It has circular links.")
                target = str(there.readlink())
                here = self.root if target.startswith("/") else here
                waiting += [part for part in reversed(target.split("/")) if part not in ("", ".")]
                continue
            if not there.is_dir():
                self._count_entry()
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


def parts_of(name: str) -> list[str]:
    parts = [part for part in name.split("/") if part not in ("", ".")]
    if ".." in parts or "\0" in name:
        raise ImageRefusedError(f"{name!r} would leave its folder.")
    return parts


def _plain(name: str) -> str:
    if name in ("", ".", ".."):
        raise ImageRefusedError("A layer has an invalid whiteout.")
    return name


def remove(path: Path) -> None:
    """Remove whatever is there, not following links."""
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)
