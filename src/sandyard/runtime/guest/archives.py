"""Folders as tar archives. No entry leaves the folder, whatever links are in the way."""

import base64
import errno
import os
import tarfile
import threading
from collections.abc import Iterator
from contextlib import suppress

from . import RefusedError, real_path

_PIECE_BYTES = 192 * 1024


def pack(path: str) -> Iterator[str]:
    """The archive in pieces, with names relative to the folder."""
    folder = real_path(path)
    names = sorted(os.listdir(folder))
    reader, writer = os.pipe()
    failures: list[OSError] = []
    packing = threading.Thread(target=_pack, args=(folder, names, writer, failures), daemon=True)
    packing.start()
    with open(reader, "rb") as packed:
        while piece := packed.read(_PIECE_BYTES):
            yield base64.b64encode(piece).decode()
    packing.join()
    if failures:
        raise failures[0]


def unpack(archive: str, path: str) -> None:
    folder = real_path(path)
    try:
        os.makedirs(folder, exist_ok=True)
        with tarfile.open(archive) as packed:
            for entry in packed:
                _unpack(packed, entry, folder)
    except (tarfile.TarError, EOFError, ValueError) as error:
        raise RefusedError("INVALID_ARCHIVE", str(error)) from error
    finally:
        os.unlink(archive)


def _pack(folder: str, names: list[str], writer: int, failures: list[OSError]) -> None:
    try:
        with open(writer, "wb") as file, tarfile.open(fileobj=file, mode="w|") as archive:
            for name in names:
                archive.add(os.path.join(folder, name), name, filter=_without_owner)
    except OSError as error:
        failures.append(error)


def _without_owner(entry: tarfile.TarInfo) -> tarfile.TarInfo | None:
    if not (entry.isreg() or entry.isdir() or entry.issym() or entry.islnk()):
        return None
    entry.uid = entry.gid = 0
    entry.uname = entry.gname = ""
    return entry


def _unpack(packed: tarfile.TarFile, entry: tarfile.TarInfo, folder: str) -> None:
    target = _target_path(folder, entry.name)
    if not (entry.isreg() or entry.isdir() or entry.issym() or entry.islnk()):
        raise RefusedError("INVALID_ARCHIVE", f"{entry.name!r} is not a file, folder or link")
    if entry.islnk():
        _target_path(folder, entry.linkname)
    if not entry.isdir() or os.path.islink(target):
        with suppress(FileNotFoundError):
            os.unlink(target)
    entry.mode &= 0o777
    packed.extract(entry, folder, set_attrs=not entry.issym(), numeric_owner=True)


def _target_path(folder: str, name: str) -> str:
    """The entry's path: below the folder, and not through a link."""
    parts = [part for part in name.split("/") if part not in ("", ".")]
    parent = os.path.join(folder, *parts[:-1])
    leaves = name.startswith("/") or ".." in parts
    if leaves or os.path.realpath(parent) != os.path.join(os.path.realpath(folder), *parts[:-1]):
        raise RefusedError("INVALID_ARCHIVE", f"{name!r} would leave the folder")
    if "\0" in name:
        raise OSError(errno.EINVAL, "no name")
    return os.path.join(folder, *parts)
