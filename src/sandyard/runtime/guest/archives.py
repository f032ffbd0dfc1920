"""Folders as tar archives. No entry leaves the folder, whatever links are in the way."""

import os
import tarfile
from typing import IO, Any

from . import RefusedError
from .paths import Paths

_HAS_FILTERS = hasattr(tarfile, "fully_trusted_filter")
"""Not all versions of Python 3.11 have them."""
_NO_FILTER: dict[str, Any] = {"filter": "fully_trusted"} if _HAS_FILTERS else {}


def enter_folder(paths: Paths, *, path: str) -> list[str]:
    """Make it the current folder of this process; returns the names in it."""
    os.chdir(paths.real_path(path))
    return sorted(os.listdir("."))


def pack(names: list[str], content: Any, *, piece_bytes: int = tarfile.RECORDSIZE) -> None:
    """Write an archive of these in the current folder, in pieces of this size."""
    with tarfile.open(fileobj=content, mode="w|", bufsize=piece_bytes) as archive:
        for name in names:
            _add(archive, name)


def unpack(paths: Paths, content: IO[bytes], *, path: str) -> None:
    """Unpack an archive up to its end into the folder, as files of the user that unpacks it."""
    folder = paths.real_path(path)
    os.makedirs(folder, exist_ok=True)
    try:
        with tarfile.open(fileobj=content, mode="r|*") as packed:
            confined = (_confined(entry, folder) for entry in packed)
            packed.extractall(folder, confined, **_NO_FILTER)
            while content.read(65536):  # padding after the archive's end
                pass
    except (tarfile.TarError, EOFError, ValueError) as error:
        raise RefusedError("INVALID_ARCHIVE", str(error)) from error


def _add(archive: tarfile.TarFile, name: str) -> None:
    """Add it recursively; files removed or replaced meanwhile are left out."""
    try:
        archive.add(name, recursive=False, filter=_without_owner)
        is_folder = os.path.isdir(name) and not os.path.islink(name)
        below = sorted(os.listdir(name)) if is_folder else []
    except (FileNotFoundError, NotADirectoryError):
        return
    for each in below:
        _add(archive, os.path.join(name, each))


def _without_owner(entry: tarfile.TarInfo) -> tarfile.TarInfo | None:
    if not _is_allowed(entry):
        return None
    entry.uid = entry.gid = 0
    entry.uname = entry.gname = ""
    return entry


def _confined(entry: tarfile.TarInfo, folder: str) -> tarfile.TarInfo:
    """The entry, if its name and the existing links keep it in the folder."""
    if not _is_allowed(entry):
        raise ValueError(f"{entry.name!r} is not a file, folder or link")
    for name in (entry.name, entry.linkname) if entry.islnk() else (entry.name,):
        above = os.path.dirname(os.path.join(folder, name.rstrip("/")))
        if name.startswith("/") or ".." in name.split("/") or not _is_below(above, folder):
            raise ValueError(f"{name!r} would leave the folder")
    if entry.isfile() or entry.isdir():
        _make_way(os.path.join(folder, entry.name), is_folder=entry.isdir())
    entry.mode &= 0o777
    entry.uid, entry.gid = os.geteuid(), os.getegid()
    entry.uname = entry.gname = ""
    return entry


def _is_allowed(entry: tarfile.TarInfo) -> bool:
    return entry.isfile() or entry.isdir() or entry.issym() or entry.islnk()


def _is_below(path: str, folder: str) -> bool:
    root = os.path.realpath(folder)
    return os.path.commonpath((os.path.realpath(path), root)) == root


def _make_way(path: str, *, is_folder: bool) -> None:
    """A link that has the name of an entry is replaced, not followed."""
    if os.path.islink(path) and not (is_folder and os.path.isdir(path)):
        os.unlink(path)
