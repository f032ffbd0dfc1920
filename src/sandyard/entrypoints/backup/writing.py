"""Makes a backup of a data dir, also while it is in use."""

import errno
import fcntl
import os
import sqlite3
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from sandyard import __version__
from sandyard.bootstrap.registry import PARTS
from sandyard.entrypoints.backup import contents
from sandyard.entrypoints.backup.archive import ArchiveWriter, Manifest, check_archive, writing
from sandyard.entrypoints.backup.databases import copy_database, reading_together, schema_version
from sandyard.entrypoints.backup.errors import BackupError
from sandyard.runtime.records.run_folder import remove_folder, sync_folder
from sandyard.settings import Settings
from sandyard.wiring.spec import Counting

STAGING = "backup"
"""Links to the files that are being backed up; removed when the backup ends."""


@dataclass(frozen=True, slots=True)
class Source:
    data_dir: Path
    databases: Sequence[Path]
    elsewhere: Sequence[str]
    """The parts whose data is not in the data dir."""
    with_secrets: bool


def find_source(settings: Settings, data_dir: Path, *, with_secrets: bool) -> Source:
    """What to back up; raises BackupError if there is nothing."""
    databases = [
        path
        for part in PARTS
        if part.is_embedded(settings) and (path := data_dir / part.database_file).exists()
    ]
    if not databases and not (data_dir / "node").exists():
        raise BackupError(f"There is nothing to back up in {data_dir}. Choose another --data-dir.")
    elsewhere = [part.name for part in PARTS if not part.is_embedded(settings)]
    return Source(data_dir, databases, elsewhere, with_secrets)


def write_backup(
    source: Source, file: Path, counting: Counting, *, replace: bool = False
) -> Manifest:
    """Write a verified backup to `file`, accessible to its owner only.

    Raises BackupError if `file` is inside the data dir; or if it exists, unless it is a regular
    file that may be replaced.
    """
    _require_target(source, file, replace=replace)
    with _naming(file), _folder_beside(file) as folder, _alone(source.data_dir) as links:
        draft = folder / "archive"
        _write(source, draft, links, folder, counting)
        with draft.open("rb") as written, counting("check", draft.stat().st_size) as on_progress:
            manifest = check_archive(written, on_progress)
        _require_target(source, file, replace=replace)  # again, as the backup took a while
        draft.replace(file)
        sync_folder(file.parent)
    return manifest


@contextmanager
def _naming(file: Path) -> Iterator[None]:
    """A full disk is told with the file that does not fit on it."""
    try:
        yield
    except (OSError, BackupError) as error:
        is_full = getattr(error, "errno", None) in (errno.ENOSPC, errno.EDQUOT)
        code = getattr(error.__cause__, "sqlite_errorcode", None)
        if not is_full and code != sqlite3.SQLITE_FULL:
            raise
        raise BackupError(
            f"{file} can't be written: the disk of {file.parent} is full. Free some space, or "
            "choose another file."
        ) from error


def _require_target(source: Source, file: Path, *, replace: bool) -> None:
    target, data_dir = file.parent.resolve() / file.name, source.data_dir.resolve()
    databases = [path.resolve() for path in source.databases]
    if target.is_relative_to(data_dir) or target in databases:
        raise BackupError(f"{file} is inside the data dir. Choose a file outside of {data_dir}.")
    if not os.path.lexists(file):
        return
    if not replace:
        raise BackupError(f"{file} exists. Choose another file, or replace it with --force.")
    if not file.is_file():
        raise BackupError(f"{file} is not a plain file. Choose another.")


@contextmanager
def _folder_beside(file: Path) -> Iterator[Path]:
    """A temporary folder on the file system of the file; removed when the block ends."""
    try:
        folder = tempfile.TemporaryDirectory(dir=file.parent, prefix=".sandyard-backup.")
    except OSError as error:
        raise BackupError(f"{file} can't be written: {error.strerror}.") from error
    with folder as path:
        yield Path(path)


def _write(source: Source, draft: Path, links: Path, folder: Path, counting: Counting) -> None:
    names = (*contents.RECORDS, *contents.RUNS, *(contents.SECRETS if source.with_secrets else ()))

    def link() -> None:
        contents.link_all(source.data_dir, names, links)

    with reading_together(source.databases, while_locked=link) as databases:
        if source.with_secrets:
            contents.link_all(
                source.data_dir, contents.MAILS, links
            )  # immutable, so no lock is needed
        files = contents.linked_files(links)
        to_read = (*source.databases, *source.databases, *(path for _, path in files))
        total = sum(path.stat().st_size for path in to_read)  # databases are copied first
        with counting("back up", total) as on_progress, writing(draft, on_progress) as archive:
            schemas = {
                path.name: _add_database(archive, database, folder / path.name)
                for path, database in zip(source.databases, databases, strict=True)
            }
            for name, path in files:
                archive.add(name, path)
            archive.finish(_about(source, schemas, [name for name, _ in files]))


def _add_database(archive: ArchiveWriter, database: sqlite3.Connection, copy: Path) -> str | None:
    """Add a copy that is removed at once, so that only one takes up disk space; returns its
    schema."""
    copy_database(database, copy, archive.advance)
    archive.add(copy.name, copy)
    copy.unlink()
    return schema_version(database)


def _about(source: Source, schemas: dict[str, str | None], names: list[str]) -> dict[str, Any]:
    node, store = source.data_dir / "node", source.data_dir / contents.STORE
    return {
        "version": __version__,
        "made_at": datetime.now(UTC).isoformat(timespec="seconds"),
        "node": node.read_text().strip() if node.exists() else None,
        "store": store.read_text() if store.exists() else None,
        "schemas": schemas,
        "elsewhere": source.elsewhere,
        "has_secrets": contents.has_secrets(names),
    }


@contextmanager
def _alone(data_dir: Path) -> Iterator[Path]:
    """An empty folder for links, while no other backup of the data dir runs.

    Leftovers of a killed backup are removed.
    """
    links = data_dir / STAGING
    descriptor = os.open(data_dir / f"{STAGING}.lock", os.O_RDWR | os.O_CREAT, 0o600)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        remove_folder(links)
        links.mkdir(mode=0o700)
        try:
            yield links
        finally:
            remove_folder(links)
    except BlockingIOError as error:
        raise BackupError(f"Another backup of {data_dir} is running.") from error
    finally:
        os.close(descriptor)
