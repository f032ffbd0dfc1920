"""Unpacks a snapshot folder by folder, for paths that are too long for one system call."""

import os
import shutil
import stat
import tarfile
from contextlib import suppress
from pathlib import PurePosixPath

from sandyard.runtime.guest import Paths, RefusedError
from sandyard.runtime.local.ipc.packets import Answer

_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_ELSEWHERE = ".sandyard-system"
"""The part outside the workspace: its paths are short enough for tar."""
_NEW_FILE = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC


def unpack(paths: Paths, archive: int) -> Answer:
    """Unpack the archive from the descriptor over the workspace; as root, with its owners. Follows
    no links."""
    root = os.open(paths.workspace, _FOLDER)
    modes: list[tuple[str, int]] = []
    try:
        with (
            os.fdopen(os.dup(archive), "rb") as content,
            tarfile.open(fileobj=content, mode="r|") as packed,
        ):
            for entry in packed:
                if (_parts(entry.name) or [""])[0] == _ELSEWHERE:
                    continue
                _put(root, packed, entry)
                if entry.isdir():
                    modes.append((entry.name, entry.mode))
        for name, mode in reversed(modes):
            _chmod(root, name, mode)
    except (tarfile.TarError, EOFError, ValueError) as error:
        raise RefusedError("INVALID_ARCHIVE", str(error)) from error
    finally:
        os.close(root)
    return Answer()


def _put(root: int, packed: tarfile.TarFile, entry: tarfile.TarInfo) -> None:
    *above, name = _parts(entry.name) or [""]
    if not name:
        return
    folder = _descend(root, above)
    try:
        if entry.isdir():
            with suppress(FileExistsError):
                os.mkdir(name, 0o700, dir_fd=folder)
            _give(entry, name, folder)
            return
        with suppress(FileNotFoundError):
            os.unlink(name, dir_fd=folder)
        if entry.issym():
            os.symlink(entry.linkname, name, dir_fd=folder)
        elif entry.islnk():
            _link(root, entry.linkname, folder, name)
        elif entry.isfifo():
            os.mkfifo(name, stat.S_IMODE(entry.mode), dir_fd=folder)
        elif entry.isfile():
            _write(packed, entry, os.open(name, _NEW_FILE, 0o600, dir_fd=folder))
        _give(entry, name, folder)
    finally:
        os.close(folder)


def _give(entry: tarfile.TarInfo, name: str, folder: int) -> None:
    """Restore the owner; entries of kinds that are not unpacked don't exist."""
    if os.geteuid() == 0:
        with suppress(FileNotFoundError):
            os.chown(name, entry.uid, entry.gid, dir_fd=folder, follow_symlinks=False)


def _write(packed: tarfile.TarFile, entry: tarfile.TarInfo, descriptor: int) -> None:
    with os.fdopen(descriptor, "wb") as file:
        content = packed.extractfile(entry)
        if content is not None:
            shutil.copyfileobj(content, file)
        os.utime(descriptor, (entry.mtime, entry.mtime))
        os.fchmod(descriptor, stat.S_IMODE(entry.mode))


def _link(root: int, source: str, folder: int, name: str) -> None:
    *above, last = _parts(source)
    holding = _descend(root, above)
    try:
        os.link(last, name, src_dir_fd=holding, dst_dir_fd=folder, follow_symlinks=False)
    finally:
        os.close(holding)


def _chmod(root: int, name: str, mode: int) -> None:
    folder = _descend(root, _parts(name))
    try:
        os.fchmod(folder, stat.S_IMODE(mode))
    finally:
        os.close(folder)


def _descend(root: int, parts: list[str]) -> int:
    folder = os.dup(root)
    for part in parts:
        try:
            below = os.open(part, _FOLDER, dir_fd=folder)
        finally:
            os.close(folder)
        folder = below
    return folder


def _parts(name: str) -> list[str]:
    parts = [part for part in PurePosixPath(name).parts if part != "."]
    if name.startswith("/") or ".." in parts:
        raise ValueError(f"{name[:100]!r} leads out of the folder")
    return parts
