"""The files of a project, and which changes of them are allowed, without any I/O."""

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from datetime import datetime

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


@dataclass(frozen=True, slots=True)
class FileChanges:
    written: Mapping[str, bytes]
    deleted: Collection[str]
    at: datetime
    size_before: int = 0
    size_after: int = 0
    """The size of all files of the project."""

    @property
    def adds(self) -> bool:
        return self.size_after > self.size_before


def different_files(
    there: Mapping[str, bytes], changes: ChangeSet, *, limits: FileLimits, now: datetime
) -> FileChanges | None:
    """What the change set changes in the existing files; None if nothing. Raises FilesLimitError,
    FileConflictError and UnsafeFilePathError."""
    check_changes(changes, {path: len(content) for path, content in there.items()}, limits)
    deleted = there.keys() & changes.deleted
    if changes.is_whole:
        deleted |= there.keys() - changes.written.keys()
    written = {
        path: content for path, content in changes.written.items() if there.get(path) != content
    }
    if not written and not deleted:
        return None
    after = {path: content for path, content in there.items() if path not in deleted} | written
    return FileChanges(
        written, deleted, at=now, size_before=_total(there), size_after=_total(after)
    )


def erased_files(there: Mapping[str, bytes], *, now: datetime) -> FileChanges | None:
    """The deletion of all files; None if there are none."""
    return FileChanges({}, there.keys(), at=now, size_before=_total(there)) if there else None


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


def _total(files: Mapping[str, bytes]) -> int:
    return sum(map(len, files.values()))


def _size(text: str) -> int:
    return len(text.encode(errors="surrogatepass"))
