"""The files of a project, their versions, and which changes are allowed, without any I/O."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Literal

from sandyard.previews.errors import FileConflictError, FilesLimitError, UnsafeFilePathError

_LONGEST_PATH = 512
_LONGEST_NAME = 200
_DEEPEST_PATH = 30


@dataclass(frozen=True, slots=True)
class ProjectFile:
    path: str
    content: bytes
    version: int


@dataclass(frozen=True, slots=True)
class ChangeSet:
    """Files to write and to delete; with `is_whole`, all others are deleted too."""

    written: Mapping[str, bytes] = field(default_factory=dict)
    deleted: frozenset[str] = frozenset()
    is_whole: bool = False


@dataclass(frozen=True, slots=True)
class FileLimits:
    files: int
    total_bytes: int
    versions: int = 100
    """How many of the last versions are kept."""


@dataclass(frozen=True, slots=True)
class Entry:
    """A file without its content."""

    size: int
    version: int
    """That last wrote it."""


@dataclass(frozen=True, slots=True)
class Version:
    """The files of a project after a change set."""

    version: int
    author: str
    created_at: datetime
    message: str
    files: int
    size_bytes: int


PublishMode = Literal["files", "build", "run"]
"""Files as they are; those that a build makes of them; an application that runs."""


@dataclass(frozen=True, slots=True)
class Publication:
    """A version that everybody can read at an address of its own."""

    version: int
    root: str
    """The folder of the project that is shown; empty for the project itself."""
    fallback: str | None
    """The page, below the root, for paths that no file has."""
    published_at: datetime
    domains: Sequence[str] = ()
    """Host names that show it too."""
    mode: PublishMode = "files"
    sandbox_id: str | None = None
    """What runs it, if it is an application."""


@dataclass(frozen=True, slots=True)
class PublishAttempt:
    """A version that is being built or started, until it is published instead."""

    id: str
    version: int
    mode: PublishMode
    until: datetime
    failure: str | None = None
    last_lines: Sequence[str] = ()
    """Of the log of one that failed."""

    def failed(self, now: datetime) -> str | None:
        if self.failure is None and now >= self.until:
            return "the server that built it has ended"
        return self.failure


@dataclass(frozen=True, slots=True)
class PublicationChange:
    publication: Publication | None
    """None to unpublish it."""
    files: Mapping[str, bytes] | None
    """By their paths below the root; None leaves them."""
    attempt: PublishAttempt | None = None
    """What leads to it, and is removed with it; nothing is written if it is over."""


def published_files(files: Sequence[ProjectFile], root: str) -> Mapping[str, bytes]:
    below = f"{root}/" if root else ""
    return {
        each.path.removeprefix(below): each.content for each in files if each.path.startswith(below)
    }


FileChange = Literal["added", "changed", "removed"]


@dataclass(frozen=True, slots=True)
class Difference:
    """A path at which two versions differ, with the sizes there."""

    path: str
    change: FileChange
    size_before: int | None
    size_after: int | None


@dataclass(frozen=True, slots=True)
class FileChanges:
    """What is written to the files of a project and their versions, in one transaction."""

    written: Mapping[str, bytes]
    deleted: Collection[str]
    at: datetime
    size_before: int = 0
    size_after: int = 0
    """The size of all files of the project."""
    count_after: int = 0
    replaced: Sequence[ProjectFile] = ()
    """What earlier versions have at the changed paths."""
    message: str | None = ""
    """None if no version is made."""
    keeps: int = 1
    """How many of the last versions can be read; 0 removes what is stored of all."""

    @property
    def added_bytes(self) -> int:
        """What is stored more, with that of earlier versions."""
        return self.size_after - self.size_before + sum(len(each.content) for each in self.replaced)


def touched_paths(there: Collection[str], changes: ChangeSet) -> frozenset[str]:
    """The existing files that the change set may change."""
    if changes.is_whole:
        return frozenset(there)
    return frozenset(there) & (changes.written.keys() | changes.deleted)


def different_files(
    there: Mapping[str, Entry],
    touched: Mapping[str, ProjectFile],
    changes: ChangeSet,
    *,
    limits: FileLimits,
    now: datetime,
    message: str = "",
) -> FileChanges | None:
    """What the change set changes in the existing files, of which `touched` has those that it may
    change; None if nothing. Raises FilesLimitError, FileConflictError and UnsafeFilePathError."""
    sizes = {path: entry.size for path, entry in there.items()}
    check_changes(changes, sizes, limits)
    deleted = there.keys() & changes.deleted
    if changes.is_whole:
        deleted |= there.keys() - changes.written.keys()
    written = {
        path: content
        for path, content in changes.written.items()
        if path not in touched or touched[path].content != content
    }
    if not written and not deleted:
        return None
    after = {path: size for path, size in sizes.items() if path not in deleted}
    after |= {path: len(content) for path, content in written.items()}
    keeps = limits.versions
    return FileChanges(
        written,
        deleted,
        at=now,
        size_before=sum(sizes.values()),
        size_after=sum(after.values()),
        count_after=len(after),
        # one of `there` that another server has removed since is not among them
        replaced=[touched[path] for path in sorted(touched.keys() & (deleted | written.keys()))]
        if keeps > 1
        else (),
        message=message,
        keeps=keeps,
    )


def erased_files(there: Collection[str], *, now: datetime) -> FileChanges:
    """The deletion of all files in all versions."""
    return FileChanges({}, there, at=now, message=None, keeps=0)


def differences(
    before: Mapping[str, Entry], after: Mapping[str, Entry], same: Collection[str] = ()
) -> Sequence[Difference]:
    """By path. A file that was written in between counts as changed, unless it is among `same`."""
    return [
        Difference(path, _change(old, new), _size_of(old), _size_of(new))
        for path in sorted(before.keys() | after.keys())
        if (old := before.get(path)) != (new := after.get(path)) and path not in same
    ]


def _change(before: Entry | None, after: Entry | None) -> FileChange:
    if before is None:
        return "added"
    return "removed" if after is None else "changed"


def _size_of(entry: Entry | None) -> int | None:
    return None if entry is None else entry.size


def readable(versions: Sequence[Version], current: int) -> Sequence[Version]:
    """Those of which every file is known, newest first: a server of 0.2.0 makes versions without
    keeping what it replaces."""
    ordered = sorted(versions, key=lambda each: -each.version)
    return [each for n, each in enumerate(ordered) if each.version == current - n]


def check_changes(changes: ChangeSet, there: Mapping[str, int], limits: FileLimits) -> None:
    """Raise unless the project stays within its limits and paths; `there` has the sizes by path."""
    for path in (*changes.written, *changes.deleted):
        check_path(path)
    if changes.deleted & changes.written.keys():
        raise FileConflictError("A path is both written and deleted.")
    kept = {} if changes.is_whole else {p: n for p, n in there.items() if p not in changes.deleted}
    after = kept | {path: len(content) for path, content in changes.written.items()}
    folders = {
        "/".join(parts[:n]) for p in after if (parts := p.split("/")) for n in range(1, len(parts))
    }
    if both := folders & after.keys():
        raise FileConflictError(f"{sorted(both)[0]!r} would be both a file and a folder.")
    if len(after) > limits.files or sum(after.values()) > limits.total_bytes:
        raise FilesLimitError(
            f"A project can have {limits.files} files and {limits.total_bytes} bytes in total.",
            details={"files": len(after), "bytes": sum(after.values())},
        )


def check_path(path: str) -> None:
    """Raise UnsafeFilePathError unless the path stays inside the project."""
    parts = path.split("/")
    if (
        "\\" in path
        or _size(path) > _LONGEST_PATH
        or len(parts) > _DEEPEST_PATH
        or any(part in ("", ".", "..") or _size(part) > _LONGEST_NAME for part in parts)
        or any(ord(letter) < 32 or 0x7F <= ord(letter) < 0xA0 for letter in path)
        or any(0xD800 <= ord(letter) <= 0xDFFF for letter in path)
    ):
        raise UnsafeFilePathError(path)


def _size(text: str) -> int:
    return len(text.encode(errors="surrogatepass"))
