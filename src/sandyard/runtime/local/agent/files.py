"""The agent's operations on files. They run inside the machine with its user's rights, so that a
path or a link can lead nowhere else."""

import errno
import json
import os
import secrets
import shutil
import stat
import tarfile
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

from sandyard.runtime.guest import RefusedError
from sandyard.runtime.guest.file_changes import apply_changes
from sandyard.runtime.guest.paths import DRAFT, Paths
from sandyard.runtime.local.agent.answers import Answer
from sandyard.runtime.local.agent.unpack import unpack
from sandyard.runtime.local.agent.watch import watch
from sandyard.runtime.local.ipc.packets import END

_MOST_ENTRIES = 10_000
_KINDS = {stat.S_IFREG: "file", stat.S_IFDIR: "folder", stat.S_IFLNK: "link"}
_USER = "user."
_NO_WAIT = os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC

Operation = Callable[..., Answer]


def quick_operations(paths: Paths) -> dict[str, Operation]:
    quick = (stat_file, open_file, create_file, commit_file, discard_file, make_folder, move)
    return {each.__name__: partial(each, paths) for each in (*quick, set_attributes)}


def slow_operations(paths: Paths) -> dict[str, Operation]:
    slow = (apply, list_folder, remove, read_tar, write_tar, unpack, watch)
    return {each.__name__: partial(each, paths) for each in slow}


def stat_file(paths: Paths, *, path: str) -> Answer:
    return Answer(_info(paths, paths.real_path(path)))


def open_file(paths: Paths, *, path: str) -> Answer:
    """A descriptor to read a regular file; opening anything else could block forever."""
    descriptor = os.open(paths.real_path(path), os.O_RDONLY | _NO_WAIT)
    mode = os.fstat(descriptor).st_mode
    if not stat.S_ISREG(mode):
        os.close(descriptor)
        raise OSError(errno.EISDIR if stat.S_ISDIR(mode) else errno.EINVAL, "not a plain file")
    return Answer(_info(paths, paths.real_path(path)), descriptors=(descriptor,))


def create_file(paths: Paths, *, path: str, mode: int | None, owner: int | None = None) -> Answer:
    """A descriptor to write a draft, which `commit_file` moves into place."""
    target = os.path.realpath(paths.real_path(path))
    folder = os.path.dirname(target)
    _make_folders(folder, owner)
    _require_replaceable(target)
    draft = os.path.join(folder, f"{DRAFT}{secrets.token_hex(8)}")
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
    try:
        descriptor = os.open(draft, flags, 0o600)
    except FileNotFoundError as error:  # the folder exists, but accepts no files
        raise PermissionError(errno.EPERM, "no file can be created here") from error
    if owner is not None:
        os.fchown(descriptor, owner, owner)
    os.fchmod(descriptor, _mode_of(target) if mode is None else mode & 0o777)
    return Answer({"draft": draft, "target": target}, descriptors=(descriptor,))


def commit_file(paths: Paths, *, draft: str, target: str) -> Answer:
    _require_replaceable(target)
    os.replace(draft, target)
    return Answer(_info(paths, target))


def set_attributes(paths: Paths, *, path: str, attributes: dict[str, str]) -> Answer:
    target = paths.real_path(path)
    for name, value in attributes.items():
        os.setxattr(target, _USER + name, value.encode())
    return Answer(_info(paths, target))


def discard_file(_paths: Paths, *, draft: str) -> Answer:
    os.unlink(draft)
    return Answer()


def apply(paths: Paths, archive: int, *, deleted: list[str]) -> Answer:
    """Delete these, and write the files of a tar archive, each atomically."""
    with (
        os.fdopen(os.dup(archive), "rb") as content,
        tarfile.open(fileobj=content, mode="r|") as packed,
    ):
        written = {
            entry.name: file.read() for entry in packed if (file := packed.extractfile(entry))
        }
    apply_changes(paths.workspace, written, deleted)
    return Answer()


def make_folder(paths: Paths, *, path: str, owner: int | None = None) -> Answer:
    folder = paths.real_path(path)
    was_there = os.path.isdir(folder)
    _make_folders(folder, owner)
    return Answer(not was_there)


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


def move(paths: Paths, *, source: str, target: str) -> Answer:
    goal = paths.real_path(target)
    os.rename(paths.real_path(source), goal)
    return Answer(_info(paths, goal))


def list_folder(paths: Paths, *, path: str, depth: int) -> Answer:
    """The entries as JSON lines through a pipe: they may not fit in one packet."""
    folder = paths.real_path(path)
    found = sorted(_walk(folder, depth), key=lambda entry: entry.split("/"))
    infos = [info for entry in found if (info := _info_or_none(paths, entry)) is not None]
    return _through_pipe(infos)


def remove(paths: Paths, *, path: str) -> Answer:
    target = paths.real_path(path)
    if os.path.ismount(target) or os.path.realpath(target) == os.path.realpath(paths.workspace):
        raise OSError(errno.EBUSY, "this folder belongs to the machine")
    if os.path.isdir(target) and not os.path.islink(target):
        shutil.rmtree(target, onerror=_make_removable)
    else:
        os.unlink(target)
    return Answer()


def read_tar(paths: Paths, *, path: str) -> Answer:
    folder = paths.real_path(path)
    os.chdir(folder)
    reader, writer = os.pipe2(os.O_CLOEXEC)

    def pack() -> None:
        with os.fdopen(writer, "wb") as pipe:
            with tarfile.open(fileobj=pipe, mode="w|") as archive:
                for name in sorted(os.listdir(".")):
                    _add(archive, name)
            pipe.write(END)

    return Answer(descriptors=(reader,), then=pack)


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


def write_tar(paths: Paths, archive: int, *, path: str) -> Answer:
    """Unpack the archive from the descriptor, up to end of file."""
    folder = paths.real_path(path)
    os.makedirs(folder, exist_ok=True)
    try:
        with (
            os.fdopen(os.dup(archive), "rb") as content,
            tarfile.open(fileobj=content, mode="r|*") as packed,
        ):
            packed.extractall(folder, filter=_confined)  # noqa: S202 - the filter holds them inside
            while content.read(65536):  # padding after the archive's end
                pass
    except (tarfile.TarError, EOFError, ValueError) as error:
        raise RefusedError("INVALID_ARCHIVE", str(error)) from error
    return Answer()


def _through_pipe(infos: list[dict[str, Any]]) -> Answer:
    reader, writer = os.pipe2(os.O_CLOEXEC)

    def write() -> None:
        with os.fdopen(writer, "wb") as pipe:
            pipe.writelines(f"{json.dumps(info)}\n".encode() for info in infos)
            pipe.write(END)

    return Answer(descriptors=(reader,), then=write)


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


def _info(paths: Paths, path: str) -> dict[str, Any]:
    found = os.lstat(path)
    kind = _KINDS.get(stat.S_IFMT(found.st_mode), "other")
    return {
        "path": _as_text(paths.as_seen(os.path.normpath(path))),
        "kind": kind,
        "size_bytes": found.st_size,
        "mode": stat.S_IMODE(found.st_mode),
        "modified_at": found.st_mtime,
        "target": _as_text(os.readlink(path)) if kind == "link" else None,
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


def _as_text(path: str) -> str:
    """Replaces bytes that are not text: such a file is listed, but can't be addressed."""
    return os.fsencode(path).decode(errors="replace")


def _info_or_none(paths: Paths, path: str) -> dict[str, Any] | None:
    """None if it was removed meanwhile."""
    try:
        return _info(paths, path)
    except OSError:
        return None


def _require_replaceable(path: str) -> None:
    try:
        mode = os.lstat(path).st_mode
    except FileNotFoundError:
        return
    if stat.S_ISDIR(mode):
        raise OSError(errno.EISDIR, "the path is a folder")
    if not stat.S_ISREG(mode):
        raise OSError(errno.EINVAL, "the path is not a plain file")


def _mode_of(path: str) -> int:
    """A replaced file keeps its mode."""
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


def _without_owner(entry: tarfile.TarInfo) -> tarfile.TarInfo | None:
    if not (entry.isfile() or entry.isdir() or entry.issym() or entry.islnk()):
        return None
    entry.uid = entry.gid = 0
    entry.uname = entry.gname = ""
    return entry


def _confined(entry: tarfile.TarInfo, folder: str) -> tarfile.TarInfo:
    """The entry, if its name and the existing links keep it in the folder."""
    if not (entry.isfile() or entry.isdir() or entry.issym() or entry.islnk()):
        raise tarfile.SpecialFileError(entry)
    for name in (entry.name, entry.linkname) if entry.islnk() else (entry.name,):
        above = os.path.dirname(os.path.join(folder, name.rstrip("/")))
        if name.startswith("/") or ".." in name.split("/") or not _is_below(above, folder):
            raise tarfile.OutsideDestinationError(entry, name)
    if entry.isfile() or entry.isdir():
        _make_way(os.path.join(folder, entry.name), is_folder=entry.isdir())
    entry.mode &= 0o777
    entry.uid, entry.gid = os.geteuid(), os.getegid()  # owned by the user that unpacks it
    entry.uname = entry.gname = ""
    return entry


def _is_below(path: str, folder: str) -> bool:
    root = os.path.realpath(folder)
    return os.path.commonpath((os.path.realpath(path), root)) == root


def _make_way(path: str, *, is_folder: bool) -> None:
    """A link that has the name of an entry is replaced, not followed."""
    if os.path.islink(path) and not (is_folder and os.path.isdir(path)):
        os.unlink(path)
