"""Files and folders. A path or a link leads where the machine's user may go, and nowhere else."""

import errno
import json
import os
import shutil
import stat
from collections.abc import Iterator
from contextlib import suppress
from typing import Any

from . import WORKSPACE, RefusedError, as_text, real_path, shown_path

_MOST_ENTRIES = 10_000
_NEW_FILE_MODE = 0o644
_USER = "user."
_KINDS = {stat.S_IFREG: "file", stat.S_IFDIR: "folder", stat.S_IFLNK: "link"}


def stat_file(path: str) -> dict[str, Any]:
    return _info(real_path(path))


def list_folder(path: str, depth: int) -> Iterator[dict[str, Any]]:
    """The entries, sorted by path; none are returned if there are too many."""
    found = list(_walk(real_path(path), depth))
    yield from sorted(found, key=lambda info: str(info["path"]))


def check_readable(path: str) -> str:
    """The file's path, if it is a regular file: opening anything else could block forever."""
    file = os.path.realpath(real_path(path))
    descriptor = os.open(real_path(path), os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY)
    try:
        _require_plain(os.fstat(descriptor).st_mode)
    finally:
        os.close(descriptor)
    return file


def put_file(draft: str, path: str, mode: int | None) -> dict[str, Any]:
    """Move an upload into place atomically; the file keeps its mode unless one is given."""
    target = os.path.realpath(real_path(path))
    try:
        _require_replaceable(target)
        os.makedirs(os.path.dirname(target), exist_ok=True)
        os.chmod(draft, _mode_of(target) if mode is None else mode & 0o777)
        _replace(draft, target)
    finally:
        if os.path.exists(draft):
            os.unlink(draft)
    return _info(target)


def set_attributes(path: str, attributes: dict[str, str]) -> dict[str, Any]:
    target = real_path(path)
    for name, value in attributes.items():
        os.setxattr(target, _USER + name, value.encode())
    return _info(target)


def make_folder(path: str) -> bool:
    folder = real_path(path)
    was_there = os.path.isdir(folder)
    os.makedirs(folder, exist_ok=True)
    return not was_there


def move(source: str, target: str) -> dict[str, Any]:
    os.rename(real_path(source), real_path(target))
    return _info(real_path(target))


def remove(path: str) -> None:
    target = real_path(path)
    if os.path.realpath(target) == os.path.realpath(WORKSPACE) and not os.path.islink(target):
        raise OSError(errno.EBUSY, "the workspace stays")
    if stat.S_ISDIR(os.lstat(target).st_mode):
        _make_removable(target)
        shutil.rmtree(target)
    else:
        os.unlink(target)


def apply(incoming: str) -> None:
    """Delete and write as the uploaded folder says: `paths.json` has the paths, and each written
    file's content is under its number."""
    try:
        with open(os.path.join(incoming, "paths.json"), encoding="utf-8") as file:
            paths = json.load(file)
        for path in (*paths["deleted"], *paths["written"]):
            _require_safe(path)
        for path in paths["deleted"]:
            _delete(path)
        for number, path in enumerate(paths["written"]):
            _write(os.path.join(incoming, str(number)), path)
    finally:
        shutil.rmtree(incoming)


def _walk(folder: str, depth: int) -> Iterator[dict[str, Any]]:
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
                if left > 1 and entry.is_dir(follow_symlinks=False):
                    waiting.append((entry.path, left - 1))
                try:
                    yield _info(entry.path)
                except FileNotFoundError:
                    continue  # removed meanwhile


def _info(path: str) -> dict[str, Any]:
    found = os.lstat(path)
    kind = _KINDS.get(stat.S_IFMT(found.st_mode), "other")
    return {
        "path": shown_path(path),
        "kind": kind,
        "size_bytes": found.st_size,
        "mode": stat.S_IMODE(found.st_mode),
        "modified_at": found.st_mtime,
        "target": as_text(os.readlink(path)) if kind == "link" else None,
        "attributes": _attributes(path),
    }


def _attributes(path: str) -> dict[str, str]:
    """Text attributes only. Empty if there are none or they can't be read."""
    try:
        known = os.listxattr(path, follow_symlinks=False)
        names = [each for each in known if each.startswith(_USER)]
        found = {each: os.getxattr(path, each, follow_symlinks=False) for each in names}
        return {name[len(_USER) :]: value.decode() for name, value in found.items()}
    except (OSError, UnicodeDecodeError):
        return {}


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
        return _NEW_FILE_MODE


def _replace(draft: str, target: str) -> None:
    try:
        os.replace(draft, target)
    except OSError as error:
        if error.errno != errno.EXDEV:
            raise
        _replace_across(draft, target)


def _replace_across(draft: str, target: str) -> None:
    """Across file systems: by a copy beside the file."""
    near = f"{target}.{os.path.basename(draft)}"
    try:
        shutil.copy2(draft, near)
        os.replace(near, target)
    except FileNotFoundError as error:  # the folder exists, but accepts no files
        raise OSError(errno.EACCES, "nothing can be written there") from error
    finally:
        if os.path.exists(near):
            os.unlink(near)


def _make_removable(folder: str) -> None:
    """Give its owner access to each folder below; others are refused."""
    for here, _, _ in os.walk(folder, onerror=_open_up):
        if not os.access(here, os.R_OK | os.W_OK | os.X_OK):
            os.chmod(here, 0o700)


def _open_up(error: OSError) -> None:
    if error.errno != errno.EACCES:
        raise error
    os.chmod(error.filename, 0o700)
    _make_removable(error.filename)


def _require_safe(path: str) -> None:
    """Raises if a folder on the path is a link."""
    folder = os.path.dirname(path)
    expected = os.path.normpath(os.path.join(os.path.realpath(WORKSPACE), folder))
    if os.path.realpath(os.path.join(WORKSPACE, folder)) != expected:
        raise RefusedError("UNSAFE_PATH", path)


def _delete(path: str) -> None:
    file = os.path.join(WORKSPACE, path)
    with suppress(FileNotFoundError, NotADirectoryError, IsADirectoryError):
        os.unlink(file)
    folder = os.path.dirname(path)
    with suppress(OSError):  # something else is in it
        while folder:
            os.rmdir(os.path.join(WORKSPACE, folder))
            folder = os.path.dirname(folder)


def _write(content: str, path: str) -> None:
    file = os.path.join(WORKSPACE, path)
    try:
        os.makedirs(os.path.dirname(file), exist_ok=True)
        os.replace(content, file)
    except (FileExistsError, NotADirectoryError, IsADirectoryError) as error:
        raise RefusedError("UNSAFE_PATH", path) from error
