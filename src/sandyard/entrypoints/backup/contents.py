"""Which files of a data dir belong in a backup, beside the databases."""

import errno
import os
import shutil
import stat
from collections.abc import Iterable, Iterator
from pathlib import Path

from sandyard.bootstrap.copies import MARKER
from sandyard.entrypoints.backup.errors import BackupError

STORE = "snapshot-store"
"""It names the store of files that the data dir uses."""
FILES = ("node", "simulated-provider.json", MARKER, STORE)
ARCHIVES = ("runtime/archives", "runtime-e2b/archives")
"""The files that templates from builds and snapshots start with."""
IMAGES = "runtime/images"
"""The parts of accounts' images."""
RECORDS = (*FILES, IMAGES, "runtime/snapshots", "runtime-e2b/snapshots", *ARCHIVES)
RUNS = ("runtime/held", "runtime-e2b/held")
"""Data about each run; only the node that ran it can use it."""
SECRETS = ("secrets",)
MAILS = ("outbox",)
"""They contain tokens too."""

_OF_THE_MOMENT = ("lock", "supervisor.json")
"""The current holder of a run: none, after a restore."""
_WORKSPACES = ("workspace", "workspace.img")


def link_all(data_dir: Path, names: tuple[str, ...], to: Path) -> None:
    """Link the files below these names, so that they stay readable after removal.

    A symlinked name is followed; files on another file system are copied.
    """
    for name in names:
        top = _followed(data_dir / name)
        for path in _files_of(top):
            link = to / name / path.relative_to(top)
            link.parent.mkdir(parents=True, exist_ok=True)
            try:
                _link(path, link)
            except FileNotFoundError:
                continue  # removed meanwhile


def linked_files(folder: Path) -> list[tuple[str, Path]]:
    return [(path.relative_to(folder).as_posix(), path) for path in sorted(_files(folder))]


def has_secrets(names: Iterable[str]) -> bool:
    return any(name.startswith(tuple(f"{each}/" for each in SECRETS)) for name in names)


def is_of_node(name: str) -> bool:
    """Whether it is meaningful only to the node that was backed up."""
    return name == "node" or name.startswith(tuple(f"{each}/" for each in RUNS))


def is_known(name: str, databases: tuple[str, ...]) -> bool:
    folders = (each for each in (*RECORDS, *RUNS, *SECRETS, *MAILS) if each not in FILES)
    return name in (*databases, *FILES) or name.startswith(tuple(f"{each}/" for each in folders))


def _followed(path: Path) -> Path:
    """The target of the path; raises BackupError if it does not exist, for example on an unmounted
    disk."""
    for link in (path.parent, path):
        if link.is_symlink() and not link.exists():
            raise BackupError(f"{link} leads to {link.readlink()}, which does not exist.")
    return path.resolve()


def _link(path: Path, link: Path) -> None:
    try:
        os.link(path, link)
    except OSError as error:
        if error.errno != errno.EXDEV:
            raise
        shutil.copy2(path, link)


def _files_of(top: Path) -> Iterator[Path]:
    """The regular files at or below a name of the data dir, whatever its target is called."""
    if top.is_file():
        yield top
    elif top.is_dir():
        for entry in _entries(top):
            yield from _files(entry)


def _files(path: Path) -> Iterator[Path]:
    """The regular files at or below the path, except drafts and files written by programs."""
    try:
        mode = path.lstat().st_mode
    except FileNotFoundError:
        return
    if stat.S_ISREG(mode):
        if path.name not in (*_OF_THE_MOMENT, *_WORKSPACES) and not _is_draft(path.name):
            yield path
    elif stat.S_ISDIR(mode) and path.name not in _WORKSPACES:
        for entry in _entries(path):
            yield from _files(entry)


def _entries(folder: Path) -> list[Path]:
    try:
        return list(folder.iterdir())
    except FileNotFoundError:
        return []


def _is_draft(name: str) -> bool:
    """Files that are still being written have such a name in every part."""
    return name.startswith(".") or Path(name).suffix.startswith(".new")
