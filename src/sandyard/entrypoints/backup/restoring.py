"""Restores a backup into an empty data dir."""

import re
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import IO, Annotated

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from sandyard.bootstrap.copies import MARKER
from sandyard.bootstrap.registry import PARTS
from sandyard.entrypoints.backup.archive import Manifest, OnProgress, check_archive, extract
from sandyard.entrypoints.backup.contents import is_known, is_of_node
from sandyard.entrypoints.backup.databases import require_sound
from sandyard.entrypoints.backup.errors import (
    ArchiveInvalidError,
    BackupError,
    DataDirNotEmptyError,
)
from sandyard.entrypoints.server.data_dir import RESTORING, locked
from sandyard.kit.node import node_name
from sandyard.runtime.records.run_folder import remove_folder, sync_folder
from sandyard.wiring.spec import Counting

_NOT_DATA = frozenset({"lock", "lost+found"})
_NODE = re.compile(rb"[A-Za-z0-9._-]{1,100}\s?")
_NODE_BYTES = 200
_DATABASES = {part.database_file: part for part in PARTS}
_Word = Annotated[str, Field(pattern=r"\A[A-Za-z0-9._+-]{1,100}\z")]
_Schema = Annotated[str, Field(pattern=r"\A[0-9]{4}\z")]


class About(BaseModel):
    """A backup's manifest, validated before it is used."""

    model_config = ConfigDict(strict=True, frozen=True)

    version: _Word
    made_at: str
    node: str | None
    store: str | None = None
    schemas: dict[_Word, _Schema | None]
    """The schema of each database in the file; None if it has none yet."""
    elsewhere: list[_Word]
    has_secrets: bool


@dataclass(frozen=True, slots=True)
class Restored:
    manifest: Manifest
    node: str


def restore_backup(
    file: Path,
    data_dir: Path,
    *,
    same_node: bool,
    counting: Counting,
    as_copy: bool = False,
) -> Restored:
    """Restore the data dir, completely or not at all; as a copy, nothing outside is changed from
    it.

    Raises before any change if the data dir is in use or not empty, or the file is not an intact
    backup of this version or an earlier one.
    """
    with file.open("rb") as archive:
        _require_unused(data_dir)
        with counting("check", file.stat().st_size) as on_progress:
            manifest = check_archive(archive, on_progress)
        about = _require_fit(manifest, same_node=same_node)
        with locked(data_dir):
            _require_empty(data_dir)
            with counting("restore", file.stat().st_size) as on_progress:
                _extract(
                    archive,
                    manifest,
                    about,
                    data_dir,
                    same_node=same_node,
                    as_copy=as_copy,
                    on_progress=on_progress,
                )
    return Restored(manifest, node_name(data_dir))


def _require_unused(data_dir: Path) -> None:
    if (data_dir / "lock").exists():
        with locked(data_dir):
            pass  # no process serves from it
    _require_empty(data_dir)


def _require_empty(data_dir: Path) -> None:
    found = sorted(path.name for path in data_dir.iterdir()) if data_dir.exists() else []
    if names := [name for name in found if name not in _NOT_DATA]:
        raise DataDirNotEmptyError(
            f"{data_dir} is not empty (it has {names[0]}). Choose another --data-dir, or empty it."
        )


def _require_fit(manifest: Manifest, *, same_node: bool) -> About:
    for name in manifest.files:
        if not is_known(name, tuple(_DATABASES)):
            raise ArchiveInvalidError(f"{name!r} does not belong in a data dir.")
    about = _about_of(manifest)
    for name, version in about.schemas.items():
        part = _DATABASES[name]
        if (version or "") > part.migrations().head:
            raise BackupError(f"The backup of {part.name} is from a newer version of Sandyard.")
    if same_node and "node" not in manifest.files:
        raise BackupError("The backup names no node: restore it without --same-node.")
    return about


def _about_of(manifest: Manifest) -> About:
    """The manifest's content; raises ArchiveInvalidError if it is invalid or does not match the
    archive."""
    try:
        about = About.model_validate(manifest.about)
        datetime.fromisoformat(about.made_at)
    except (ValidationError, ValueError) as error:
        raise ArchiveInvalidError(
            "The manifest does not describe the contents of the backup."
        ) from error
    if set(about.schemas) != manifest.files.keys() & _DATABASES.keys():
        raise ArchiveInvalidError("The databases do not match the manifest.")
    return about


def _extract(
    archive: IO[bytes],
    manifest: Manifest,
    about: About,
    data_dir: Path,
    *,
    same_node: bool,
    as_copy: bool,
    on_progress: OnProgress,
) -> None:
    """Extract everything into a staging folder and check it there, then move each item into
    place."""
    staging = data_dir / RESTORING
    staging.mkdir(mode=0o700)
    try:
        extract(
            archive,
            manifest,
            staging,
            wanted=lambda name: same_node or not is_of_node(name),
            on_progress=on_progress,
        )
        _require_usable(staging, about)
        if as_copy:
            (staging / MARKER).touch(mode=0o600)
    except BaseException:
        remove_folder(staging)
        raise
    for path in sorted(staging.iterdir()):
        path.rename(data_dir / path.name)
    sync_folder(data_dir)
    staging.rmdir()


def _require_usable(staging: Path, about: About) -> None:
    for name, schema in about.schemas.items():
        require_sound(staging / name, schema=schema)
    if (staging / "node").exists():
        with (staging / "node").open("rb") as node:
            if not _NODE.fullmatch(node.read(_NODE_BYTES)):
                raise ArchiveInvalidError("The node's name is invalid.")
