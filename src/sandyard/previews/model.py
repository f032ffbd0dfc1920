"""What is known of a project's sandbox, and what follows from it, without any I/O."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from enum import StrEnum
from typing import Any

from sandyard.kit.errors import UnavailableError
from sandyard.previews.errors import FileConflictError, FilesLimitError, UnsafeFilePathError

LAST_KNOWN_FOR = timedelta(minutes=5)
"""How long the last answer of the provider is given while it does not answer."""

_LONGEST_PATH = 512
_LONGEST_NAME = 200
_DEEPEST_PATH = 30


class Status(StrEnum):
    RUNNING = "running"
    EXPIRED = "expired"
    NOT_FOUND = "not_found"
    UNKNOWN = "unknown"


class ActionRequired(StrEnum):
    NONE = "none"
    SYNC_NEEDED = "sync_needed"
    RETRY_LATER = "retry_later"


@dataclass(frozen=True, slots=True)
class SandboxInfo:
    """A project's sandbox, as the provider last told of it."""

    sandbox_id: str
    preview_url: str
    start_time: datetime
    end_time: datetime
    last_checked: datetime
    attempt: str = ""
    files_version: int = 0
    """The version of the project's files that it was brought to."""

    def as_json(self) -> dict[str, Any]:
        return {
            "sandbox_id": self.sandbox_id,
            "preview_url": self.preview_url,
            "start_time": iso(self.start_time),
            "end_time": iso(self.end_time),
            "last_checked": iso(self.last_checked),
            "attempt": self.attempt,
            "files_version": self.files_version,
        }

    @classmethod
    def from_json(cls, stored: Mapping[str, Any]) -> "SandboxInfo":
        start = datetime.fromisoformat(stored["start_time"])
        return cls(
            sandbox_id=stored["sandbox_id"] or "",
            preview_url=stored["preview_url"] or "",
            start_time=start,
            end_time=datetime.fromisoformat(stored["end_time"]),
            last_checked=datetime.fromisoformat(stored.get("last_checked", stored["start_time"])),
            attempt=stored.get("attempt", ""),
            files_version=stored.get("files_version", 0),
        )


@dataclass(frozen=True, slots=True)
class Attempt:
    """Somebody is making a sandbox, and has until then to record it."""

    id: str
    until: datetime


@dataclass(frozen=True, slots=True)
class Preview:
    """A project as Previews see it."""

    project_id: str
    account_id: str
    is_archived: bool
    info: SandboxInfo | None
    attempt: Attempt | None
    files_version: int
    revision: int
    """Counts the changes of info and attempt: one is made on condition that there was no other."""


@dataclass(frozen=True, slots=True)
class Found:
    """The provider says that it runs, until then."""

    end_time: datetime


@dataclass(frozen=True, slots=True)
class Gone:
    """The provider says that there is no such sandbox."""


@dataclass(frozen=True, slots=True)
class Trouble:
    """The provider does not say."""

    error: UnavailableError


Answer = Found | Gone | Trouble


@dataclass(frozen=True, slots=True)
class Verdict:
    """What a caller is told, and what is to be remembered of it."""

    status: Status
    action: ActionRequired
    message: str
    info: SandboxInfo | None = None
    trouble: UnavailableError | None = None
    """Why the provider was not heard."""

    @property
    def is_stale(self) -> bool:
        return self.trouble is not None and self.status is Status.RUNNING


def is_worth_asking(info: SandboxInfo | None, *, now: datetime) -> bool:
    """Whether only the provider can tell. Past its end nobody has to be asked."""
    return info is not None and now < info.end_time


def decide(info: SandboxInfo | None, answer: Answer | None, *, now: datetime) -> Verdict:
    """Trouble is never `expired`: that would make a second sandbox."""
    if info is None:
        return Verdict(Status.NOT_FOUND, ActionRequired.SYNC_NEEDED, "There is no preview yet.")
    match answer:
        case Found(end_time=end_time) if now < end_time:
            seen = replace(info, end_time=end_time, last_checked=now)
            return Verdict(Status.RUNNING, ActionRequired.NONE, "The preview is running.", seen)
        case Trouble(error=error) if now - info.last_checked < LAST_KNOWN_FOR:
            message = "The provider does not answer; this is what it last said."
            return Verdict(Status.RUNNING, ActionRequired.NONE, message, info, error)
        case Trouble(error=error):
            return Verdict(Status.UNKNOWN, ActionRequired.RETRY_LATER, error.message, info, error)
        case _:
            ended = replace(info, end_time=min(info.end_time, now), last_checked=now)
            message = "The preview has ended."
            return Verdict(Status.EXPIRED, ActionRequired.SYNC_NEEDED, message, ended)


@dataclass(frozen=True, slots=True)
class ProjectFile:
    path: str
    content: bytes
    version: int


@dataclass(frozen=True, slots=True)
class ChangeSet:
    """Files to write and to delete; with `is_whole`, all others go too."""

    written: Mapping[str, bytes] = field(default_factory=dict)
    deleted: frozenset[str] = frozenset()
    is_whole: bool = False


@dataclass(frozen=True, slots=True)
class FileLimits:
    files: int
    total_bytes: int


def check_changes(changes: ChangeSet, there: Mapping[str, int], limits: FileLimits) -> None:
    """Raise unless the project stays within its limits and paths; `there` are sizes by path."""
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
        raise FileConflictError(f"{sorted(both)[0]!r} would be a file and a folder at once.")
    if len(after) > limits.files or sum(after.values()) > limits.total_bytes:
        raise FilesLimitError(
            f"A project has at most {limits.files} files of {limits.total_bytes} bytes together.",
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


def iso(at: datetime) -> str:
    """UTC with milliseconds, a form of fixed width that sorts as the times follow each other."""
    return at.astimezone(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def to_milliseconds(at: datetime) -> datetime:
    """As it is after it was stored and read again."""
    return at.replace(microsecond=at.microsecond // 1000 * 1000)


def remaining_minutes(end_time: datetime, *, now: datetime) -> int:
    return max(0, int((end_time - now).total_seconds() // 60))
