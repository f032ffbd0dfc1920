"""Files and folders. A path or a link leads where the machine's user may go, and nowhere else."""

import errno
import os
import shutil
import stat
from collections.abc import Iterator
from typing import Any

from . import RefusedError
from .paths import DRAFT, Paths, as_text

_MOST_ENTRIES = 10_000
_KINDS = {stat.S_IFREG: "file", stat.S_IFDIR: "folder", stat.S_IFLNK: "link"}
_USER = "user."
_NO_WAIT = os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC
_NEW_FILE = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC

Info = dict[str, Any]


def stat_file(paths: Paths, *, path: str) -> Info:
    return _info(paths, paths.real_path(path))


def open_file(paths: Paths, *, path: str) -> tuple[Info, int]:
    """A descriptor to read a regular file; opening anything else could block forever."""
    descriptor = os.open(paths.real_path(path), os.O_RDONLY | _NO_WAIT)
    try:
        _require_plain(os.fstat(descriptor).st_mode)
        return _info(paths, paths.real_path(path)), descriptor
    except BaseException:
        os.close(descriptor)
        raise


def create_file(
    paths: Paths, *, path: str, mode: int | None, owner: int | None = None
) -> tuple[dict[str, str], int]:
    """A draft, which `commit_file` moves into place, and a descriptor to write it. A replaced file
    keeps its mode unless one is given."""
    target = os.path.realpath(paths.real_path(path))
    folder = os.path.dirname(target)
    _make_folders(folder, owner)
    _require_replaceable(target)
    draft = os.path.join(folder, f"{DRAFT}{os.urandom(8).hex()}")
    try:
        descriptor = os.open(draft, _NEW_FILE, 0o600)
    except FileNotFoundError as error:  # the folder exists, but accepts no files
        raise PermissionError(errno.EPERM, "no file can be created here") from error
    if owner is not None:
        os.fchown(descriptor, owner, owner)
    os.fchmod(descriptor, _mode_of(target) if mode is None else mode & 0o777)
    return {"draft": draft, "target": target}, descriptor


def commit_file(paths: Paths, *, draft: str, target: str) -> Info:
    _require_replaceable(target)
    os.replace(draft, target)
    return _info(paths, target)


def discard_file(_paths: Paths, *, draft: str) -> None:
    os.unlink(draft)


def set_attributes(paths: Paths, *, path: str, attributes: dict[str, str]) -> Info:
    target = paths.real_path(path)
    for name, value in attributes.items():
        os.setxattr(target, _USER + name, value.encode())
    return _info(paths, target)


def make_folder(paths: Paths, *, path: str, owner: int | None = None) -> bool:
    """Whether it is new."""
    folder = paths.real_path(path)
    was_there = os.path.isdir(folder)
    _make_folders(folder, owner)
    return not was_there


def move(paths: Paths, *, source: str, target: str) -> Info:
    goal = paths.real_path(target)
    os.rename(paths.real_path(source), goal)
    return _info(paths, goal)


def list_folder(paths: Paths, *, path: str, depth: int) -> list[Info]:
    found = sorted(_walk(paths.real_path(path), depth), key=lambda entry: entry.split("/"))
    return [info for entry in found if (info := _info_or_none(paths, entry)) is not None]


def remove(paths: Paths, *, path: str) -> None:
    target = paths.real_path(path)
    is_folder = os.path.isdir(target) and not os.path.islink(target)
    is_workspace = os.path.realpath(target) == os.path.realpath(paths.workspace)
    if os.path.ismount(target) or (is_folder and is_workspace):
        raise OSError(errno.EBUSY, "this folder belongs to the machine")
    if is_folder:
        shutil.rmtree(target, onerror=_make_removable)
    else:
        os.unlink(target)


def _make_folders(folder: str, owner: int | None) -> None:
    """Make the folder and its parents. New ones get this owner, if root makes them for a user."""
    missing: list[str] = []
    above = folder
    while owner is not None and not os.path.isdir(above):
        missing.append(above)
        above = os.path.dirname(above)
    os.makedirs(folder, exist_ok=True)
    for each in missing:
        os.chown(each, owner or 0, owner or 0, follow_symlinks=False)


def _walk(folder: str, depth: int) -> Iterator[str]:
    waiting = [(folder, depth)]
    count = 0
    while waiting:
        here, left = waiting.pop()
        try:
            entries = os.scandir(here)
        except (PermissionError, FileNotFoundError, NotADirectoryError):
            if here == folder:
                raise
            continue  # not accessible, or removed meanwhile
        with entries:
            for entry in entries:
                count += 1
                if count > _MOST_ENTRIES:
                    raise RefusedError("TOO_MANY_FILES")
                yield entry.path
                if left > 1 and entry.is_dir(follow_symlinks=False):
                    waiting.append((entry.path, left - 1))


def _info(paths: Paths, path: str) -> Info:
    found = os.lstat(path)
    kind = _KINDS.get(stat.S_IFMT(found.st_mode), "other")
    return {
        "path": paths.as_seen(path),
        "kind": kind,
        "size_bytes": found.st_size,
        "mode": stat.S_IMODE(found.st_mode),
        "modified_at": found.st_mtime,
        "target": as_text(os.readlink(path)) if kind == "link" else None,
        "attributes": _attributes(path),
        "uid": found.st_uid,
        "gid": found.st_gid,
    }


def _attributes(path: str) -> dict[str, str]:
    """Text attributes only. Empty if there are none or they can't be read."""
    try:
        known = os.listxattr(path, follow_symlinks=False)
        names = [each for each in known if each.startswith(_USER)]
        found = {each: os.getxattr(path, each, follow_symlinks=False) for each in names}
        return {name.removeprefix(_USER): value.decode() for name, value in found.items()}
    except (OSError, UnicodeDecodeError):
        return {}


def _info_or_none(paths: Paths, path: str) -> Info | None:
    """None if it was removed meanwhile."""
    try:
        return _info(paths, path)
    except OSError:
        return None


def _require_plain(mode: int) -> None:
    if not stat.S_ISREG(mode):
        raise OSError(errno.EISDIR if stat.S_ISDIR(mode) else errno.EINVAL, "not a plain file")


def _require_replaceable(path: str) -> None:
    try:
        _require_plain(os.lstat(path).st_mode)
    except FileNotFoundError:
        return


def _mode_of(path: str) -> int:
    try:
        return stat.S_IMODE(os.lstat(path).st_mode)
    except FileNotFoundError:
        return 0o644


def _make_removable(_failed: object, path: str, _error: object) -> None:
    """Give the owner access to a folder that denies it, then retry once."""
    is_folder = os.path.isdir(path) and not os.path.islink(path)
    for folder in (os.path.dirname(path), path) if is_folder else (os.path.dirname(path),):
        os.chmod(folder, 0o700)
    if is_folder:
        shutil.rmtree(path)
    else:
        os.unlink(path)
