"""Writes and deletes files of the workspace, whose programs may have put anything in their way.

Every step goes from an open folder to one of its entries and follows no link, so nothing that
a program renames or links in between leads out.
"""

import errno
import os
from collections.abc import Iterable, Mapping, Sequence

from . import RefusedError
from .paths import DRAFT

UNSAFE_PATH = "UNSAFE_PATH"
_FULL = {errno.ENOSPC, errno.EDQUOT, errno.EFBIG}
_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC


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


_NOTHING_TO_DO = {
    errno.ENOENT,
    errno.ENOTDIR,
    errno.ELOOP,
    errno.EISDIR,
    errno.EPERM,
    errno.ENOTEMPTY,
    errno.EEXIST,
}


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
