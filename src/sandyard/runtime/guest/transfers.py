"""Many files at once: folders as tar archives, of which no entry leaves the folder, and the content
of files on its way into and out of a machine elsewhere."""

import base64
import json
import os
import shutil
import stat
import tarfile
from collections.abc import Iterable, Iterator
from typing import IO, Any

from . import Paths, RefusedError, files, write_line

_PIECE_BYTES = 192 * 1024
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


def list_folder(paths: Paths, **arguments: Any) -> Iterator[files.Info]:
    yield from files.list_folder(paths, **arguments)


def check_readable(paths: Paths, *, path: str) -> str:
    """The real path of a file that can be read."""
    _, descriptor = files.open_file(paths, path=path)
    os.close(descriptor)
    return os.path.realpath(paths.real_path(path))


def put_file(paths: Paths, *, upload: str, path: str, mode: int | None) -> files.Info:
    """Move an upload into place atomically."""
    try:
        created, descriptor = files.create_file(paths, path=path, mode=mode)
        os.chmod(upload, stat.S_IMODE(os.fstat(descriptor).st_mode))
        os.close(descriptor)
        try:
            shutil.move(upload, created["draft"])
            return files.commit_file(paths, **created)
        except BaseException:
            files.discard_file(paths, draft=created["draft"])
            raise
    finally:
        if os.path.exists(upload):
            os.unlink(upload)


def apply(paths: Paths, *, incoming: str) -> None:
    """Delete and write as the uploaded folder says: `paths.json` has the paths, and each written
    file's content is under its number."""
    try:
        listed = json.loads(_read(incoming, "paths.json"))
        written = {path: _read(incoming, str(n)) for n, path in enumerate(listed["written"])}
        _require_inside(paths.workspace, listed["written"])
        files.apply_changes(paths.workspace, written, listed["deleted"])
    finally:
        shutil.rmtree(incoming)


def read_tar(paths: Paths, *, path: str) -> None:
    names = enter_folder(paths, path=path)
    pack(names, _Lines(), piece_bytes=_PIECE_BYTES)


def write_tar(paths: Paths, *, upload: str, path: str) -> None:
    try:
        with open(upload, "rb") as content:
            unpack(paths, content, path=path)
    finally:
        os.unlink(upload)


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


class _Lines:
    def write(self, piece: bytes) -> None:
        write_line({"item": base64.b64encode(piece).decode()})


def _require_inside(workspace: str, written: Iterable[str]) -> None:
    """Before anything is written: no link on the way to a file leads out of the workspace."""
    root = os.path.realpath(workspace)
    for path in written:
        folder = os.path.realpath(os.path.dirname(os.path.join(root, path)))
        if folder != root and not folder.startswith(f"{root}/"):
            raise RefusedError(files.UNSAFE_PATH, path)


def _read(folder: str, name: str) -> bytes:
    with open(os.path.join(folder, name), "rb") as file:
        return file.read()
