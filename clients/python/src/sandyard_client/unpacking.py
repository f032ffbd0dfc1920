"""Unpacks the archive of a sandbox's folder, whatever was put into it; without the filters of
`tarfile`, which Python 3.11.2 lacks and which later ones have mended several times."""

import logging
import os
import shutil
import tarfile
from pathlib import Path

logger = logging.getLogger("sandyard_client")


class _LeftOutError(Exception):
    """An entry that would leave the folder, or that is neither file, folder nor link."""


def unpack(archive: Path, target: Path) -> None:
    """Unpack into the folder, over what is there. No entry can leave it: those that would, links
    that would, and devices are left out with a warning. Owners stay the caller's."""
    target.mkdir(parents=True, exist_ok=True)
    root = Path(os.path.realpath(target))
    folders: list[tuple[Path, float]] = []
    with tarfile.open(archive) as tar:
        for member in tar:
            try:
                path = _put(tar, member, root)
            except _LeftOutError as error:
                logger.warning("left out: %s", error)
                continue
            if member.isdir():
                folders.append((path, member.mtime))
    for path, mtime in reversed(folders):
        os.utime(path, (mtime, mtime))


def _put(tar: tarfile.TarFile, member: tarfile.TarInfo, root: Path) -> Path:
    path = root / member.name.lstrip("/" + os.sep)
    _require_inside(root, path, member)
    if member.isdir():
        path.mkdir(parents=True, exist_ok=True)
    elif member.issym():
        _link(member, root, path)
    elif member.islnk():
        _link_file(member, root, path)
    elif member.isreg():
        _write(tar, member, path)
    else:
        raise _LeftOutError(f"{member.name!r} is a special file")
    return path


def _require_inside(root: Path, path: Path, member: tarfile.TarInfo) -> None:
    if not Path(os.path.realpath(path)).is_relative_to(root):
        raise _LeftOutError(f"{member.name!r} leads out of the folder")


def _link(member: tarfile.TarInfo, root: Path, path: Path) -> None:
    target = Path(member.linkname)
    if target.is_absolute():
        raise _LeftOutError(f"{member.name!r} is a link to an absolute path")
    _require_inside(root, path.parent / target, member)
    _make_place(path)
    path.symlink_to(target)


def _link_file(member: tarfile.TarInfo, root: Path, path: Path) -> None:
    """Hard links to files that are unpacked already."""
    target = root / member.linkname
    _require_inside(root, target, member)
    if target.is_symlink() or not target.is_file():
        raise _LeftOutError(f"{member.name!r} is a link to a file that is not in the archive")
    if target != path:
        _make_place(path)
        path.hardlink_to(target)


def _write(tar: tarfile.TarFile, member: tarfile.TarInfo, path: Path) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    content = tar.extractfile(member)
    assert content is not None  # noqa: S101 - it is a regular file
    with path.open("wb") as file:
        shutil.copyfileobj(content, file)
    path.chmod(0o600 | member.mode & (0o755 if member.mode & 0o100 else 0o644))
    os.utime(path, (member.mtime, member.mtime))


def _make_place(path: Path) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.unlink(missing_ok=True)
