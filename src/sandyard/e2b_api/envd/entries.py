"""Files in the format of E2B's API."""

import posixpath
import stat
from datetime import UTC, datetime
from typing import Any

from sandyard.e2b_api.envd.own_files import OwnFiles
from sandyard.e2b_api.envd.paths import HOME, ROOT, USER
from sandyard.runtime.errors import FileMissingError, FileRefusedError, InvalidPathError
from sandyard.runtime.sessions.model import WORKSPACE, FileInfo

_KINDS = {"file": stat.S_IFREG, "folder": stat.S_IFDIR, "link": stat.S_IFLNK, "other": 0}
_TYPES = {"file": "FILE_TYPE_FILE", "folder": "FILE_TYPE_DIRECTORY"}
_OWN = (HOME, WORKSPACE, "/tmp", "/dev/shm")  # noqa: S108 - inside
_MOST_LINKS = 8
_NAMES = {0: ROOT, 1000: USER, 65534: ROOT}
"""Where a sandbox has no root, files of nobody belong to the machine."""
METADATA = "e2b."
"""Prefix of the extended attributes that are metadata."""


async def entry_of(files: OwnFiles, info: FileInfo, *, path: str | None = None) -> dict[str, Any]:
    """A link has the type of its target, and `symlinkTarget`."""
    shown = path or info.path
    led_to = await _led_to(files, info) if info.kind == "link" else info
    entry: dict[str, Any] = {
        "name": posixpath.basename(shown),
        "path": shown,
        "type": _TYPES.get(led_to.kind if led_to else "", "FILE_TYPE_UNSPECIFIED"),
        "size": str(info.size_bytes),
        "mode": info.mode & 0o7777,
        "permissions": _permissions(info),
        "owner": _name(info.uid, shown),
        "group": _name(info.gid, shown),
        "modifiedTime": datetime.fromtimestamp(info.modified_at, UTC)
        .isoformat()
        .replace("+00:00", "Z"),
    }
    if metadata := metadata_of(info):
        entry["metadata"] = metadata
    if info.target is not None:
        entry["symlinkTarget"] = posixpath.normpath(
            posixpath.join(posixpath.dirname(shown), info.target)
        )
    return entry


def metadata_of(info: FileInfo) -> dict[str, str]:
    """The metadata that was sent with a file."""
    return {
        name.removeprefix(METADATA): value
        for name, value in info.attributes.items()
        if name.startswith(METADATA)
    }


async def _led_to(files: OwnFiles, info: FileInfo) -> FileInfo | None:
    """None for a broken link or a loop."""
    for _ in range(_MOST_LINKS):
        if info.kind != "link":
            return info
        try:
            info = await files.stat(posixpath.join(posixpath.dirname(info.path), info.target or ""))
        except (FileMissingError, FileRefusedError, InvalidPathError):
            return None
    return None


def _name(owner: int | None, path: str) -> str:
    """The name of the owner with this id; without an id, derived from the file's location."""
    if owner is None:
        is_own = any(f"{path}/".startswith(f"{each}/") for each in _OWN)
        return USER if is_own else ROOT
    return _NAMES.get(owner, str(owner))


def _permissions(info: FileInfo) -> str:
    shown = stat.filemode(_KINDS[info.kind] | (info.mode & 0o7777))
    return "L" + shown[1:] if info.kind == "link" else shown.replace("?", "-")
