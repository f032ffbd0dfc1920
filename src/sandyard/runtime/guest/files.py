"""Files and folders. A path or a link leads where the machine's user may go, and nowhere else."""

import errno
import heapq
import os
import shutil
import stat
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from . import DRAFT, Paths, RefusedError, as_text

_MOST_ENTRIES, _MOST_IN_PAGES = 10_000, 100_000
_MOST_BYTES = 2 << 20
"""Of the names and attributes in one listing."""
_KINDS = {stat.S_IFREG: "file", stat.S_IFDIR: "folder", stat.S_IFLNK: "link"}
_USER = "user."
_NO_WAIT = os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC
_NEW_FILE = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC

Info = dict[str, Any]
UNSAFE_PATH = "UNSAFE_PATH"
_FULL = {errno.ENOSPC, errno.EDQUOT, errno.EFBIG}
_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_NOTHING_TO_DO = {
    errno.ENOENT,
    errno.ENOTDIR,
    errno.ELOOP,
    errno.EISDIR,
    errno.EPERM,
    errno.ENOTEMPTY,
    errno.EEXIST,
}


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


def list_folder(
    paths: Paths,
    *,
    path: str,
    depth: int,
    after: str | None = None,
    limit: int | None = None,
    attributes: str | None = None,
) -> list[Info]:
    """All entries, or the first `limit` of those after this path; each with the attributes whose
    names begin with `attributes`."""

    def order(entry: str) -> list[str]:
        return paths.as_seen(entry).split("/")

    found: Iterable[str] = _walk(paths.real_path(path), depth, limit is not None)
    if after is not None:
        last = after.split("/")
        found = (entry for entry in found if order(entry) > last)
    chosen = sorted(found, key=order) if limit is None else heapq.nsmallest(limit, found, key=order)
    infos = (_info_or_none(paths, entry, attributes) for entry in chosen)
    return _within_size(info for info in infos if info is not None)


def _within_size(infos: Iterable[Info]) -> list[Info]:
    kept: list[Info] = []
    size = 0
    for info in infos:
        size += sum(map(len, (info["path"], info["target"] or "", str(info["attributes"]))))
        if size > _MOST_BYTES:
            raise RefusedError("TOO_MANY_FILES")
        kept.append(info)
    return kept


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


def _walk(folder: str, depth: int, is_paged: bool) -> Iterator[str]:
    most = _MOST_IN_PAGES if is_paged else _MOST_ENTRIES
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
                if count > most:
                    raise RefusedError("TOO_MANY_FILES")
                yield entry.path
                if left > 1 and entry.is_dir(follow_symlinks=False):
                    waiting.append((entry.path, left - 1))


def _info(paths: Paths, path: str, attributes: str | None = "") -> Info:
    found = os.lstat(path)
    kind = _KINDS.get(stat.S_IFMT(found.st_mode), "other")
    return {
        "path": paths.as_seen(path),
        "kind": kind,
        "size_bytes": found.st_size,
        "mode": stat.S_IMODE(found.st_mode),
        "modified_at": found.st_mtime,
        "target": as_text(os.readlink(path)) if kind == "link" else None,
        "attributes": {} if attributes is None else _attributes(path, _USER + attributes),
        "uid": found.st_uid,
        "gid": found.st_gid,
    }


def _attributes(path: str, prefix: str) -> dict[str, str]:
    """Text attributes only. Empty if there are none or they can't be read."""
    try:
        known = os.listxattr(path, follow_symlinks=False)
        names = [each for each in known if each.startswith(prefix)]
        found = {each: os.getxattr(path, each, follow_symlinks=False) for each in names}
        return {name.removeprefix(_USER): value.decode() for name, value in found.items()}
    except (OSError, UnicodeDecodeError):
        return {}


def _info_or_none(paths: Paths, path: str, attributes: str | None) -> Info | None:
    """None if it was removed meanwhile."""
    try:
        return _info(paths, path, attributes)
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


def apply_changes(workspace: str, written: Mapping[str, bytes], deleted: Iterable[str]) -> None:
    """Delete and write files. If a path is not safe, UNSAFE_PATH is refused; if it leads out of the
    workspace, before anything is done."""
    gone = [_parts(path) for path in sorted(deleted)]
    files = [(_parts(path), content) for path, content in sorted(written.items())]
    root = _open_root(workspace)
    try:
        for parts in gone:
            _delete(root, parts)
        for parts, content in files:
            _write(root, parts, content)
    finally:
        os.close(root)


def _parts(path: str) -> Sequence[str]:
    parts = path.split("/")
    if any(part in ("", ".", "..") for part in parts):
        raise RefusedError(UNSAFE_PATH, path)
    return parts


def _open_root(workspace: str) -> int:
    """The workspace itself, even if its program took away all rights to enter it."""
    try:
        return os.open(workspace, _FOLDER)
    except PermissionError:
        os.chmod(workspace, 0o700)  # the program can't put a link into its parent folder
        return os.open(workspace, _FOLDER)


def _delete(root: int, parts: Sequence[str]) -> None:
    folders = [root]
    try:
        for part in parts[:-1]:
            folders.append(os.open(part, _FOLDER, dir_fd=folders[-1]))
        os.unlink(parts[-1], dir_fd=folders[-1])
        for part, parent in reversed(list(zip(parts[:-1], folders, strict=False))):
            os.rmdir(part, dir_fd=parent)
    except OSError as error:
        # Already gone, or a folder that still has files: nothing to do in both cases.
        if error.errno not in _NOTHING_TO_DO:
            raise
    finally:
        for folder in folders[1:]:
            os.close(folder)


def _write(root: int, parts: Sequence[str], content: bytes) -> None:
    folder = os.dup(root)
    try:
        for part in parts[:-1]:
            below = _enter(folder, part)
            os.close(folder)
            folder = below
        _put(folder, parts[-1], content)
    except OSError as error:
        if error.errno in _FULL:
            raise
        raise RefusedError(UNSAFE_PATH, "/".join(parts)) from error
    finally:
        os.close(folder)


def _enter(folder: int, name: str) -> int:
    """The folder of this name, created if missing; a link or file in its place is removed."""
    try:
        return os.open(name, _FOLDER, dir_fd=folder)
    except FileNotFoundError:
        pass
    except OSError:
        os.unlink(name, dir_fd=folder)
    os.mkdir(name, 0o755, dir_fd=folder)
    return os.open(name, _FOLDER, dir_fd=folder)


def _put(folder: int, name: str, content: bytes) -> None:
    draft = f"{DRAFT}{os.urandom(8).hex()}"
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
    descriptor = os.open(draft, flags, 0o644, dir_fd=folder)
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(content)
        os.rename(draft, name, src_dir_fd=folder, dst_dir_fd=folder)
    except OSError:
        os.unlink(draft, dir_fd=folder)
        raise
