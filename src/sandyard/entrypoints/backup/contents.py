"""What of a data dir belongs into a backup, beside the databases."""

import errno
import os
import shutil
import stat
from collections.abc import Iterable, Iterator
from pathlib import Path

from sandyard.entrypoints.backup.errors import BackupError

FILES = ("node", "simulated-provider.json")
ARCHIVES = ("runtime/archives", "runtime-e2b/archives")
"""What templates of builds and snapshots begin with."""
RECORDS = (*FILES, "runtime/snapshots", "runtime-e2b/snapshots", *ARCHIVES)
RUNS = ("runtime/held", "runtime-e2b/held")
"""What is known of each run; only the node that ran it can use it."""
SECRETS = ("secrets",)
MAILS = ("outbox",)
"""They hold tokens, too."""

_OF_THE_MOMENT = ("lock", "supervisor.json")
"""Who holds a run just now: nobody, where it is restored."""
_WORKSPACES = ("workspace", "workspace.img")


def link_all(data_dir: Path, names: tuple[str, ...], to: Path) -> None:
    """Link the files below these names, so that what is removed from now on stays readable.

    A name that is a symlink is followed; what is on another file system is copied.
    """
    for name in names:
        top = _followed(data_dir / name)
        for path in _files_of(top):
            link = to / name / path.relative_to(top)
            link.parent.mkdir(parents=True, exist_ok=True)
            try:
                _link(path, link)
            except FileNotFoundError:
                continue  # it was removed just now


def linked_files(folder: Path) -> list[tuple[str, Path]]:
    """The files below the folder, with their names in a backup."""
    return [(path.relative_to(folder).as_posix(), path) for path in sorted(_files(folder))]


def has_secrets(names: Iterable[str]) -> bool:
    """Whether there are generated tokens and keys among the files of a backup."""
    return any(name.startswith(tuple(f"{each}/" for each in SECRETS)) for name in names)


def is_of_node(name: str) -> bool:
    """Whether it means something only to the node that was backed up."""
    return name == "node" or name.startswith(tuple(f"{each}/" for each in RUNS))


def is_known(name: str, databases: tuple[str, ...]) -> bool:
    """Whether a backup may hold a file of this name."""
    folders = (each for each in (*RECORDS, *RUNS, *SECRETS, *MAILS) if each not in FILES)
    return name in (*databases, *FILES) or name.startswith(tuple(f"{each}/" for each in folders))


def _followed(path: Path) -> Path:
    """Where the path leads; raise BackupError if that is nowhere, as without its disk."""
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
    """The plain files at or below a name of the data dir, whatever it is called where it leads."""
    if top.is_file():
        yield top
    elif top.is_dir():
        for entry in _entries(top):
            yield from _files(entry)


def _files(path: Path) -> Iterator[Path]:
    """The plain files at or below the path, but for drafts and what programs wrote."""
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
    """What is still being written has such a name in every part."""
    return name.startswith(".") or Path(name).suffix.startswith(".new")
