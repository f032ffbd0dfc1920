"""The known state of a project's sandbox, and the decisions about it, without any I/O.

A decision returns the transition of a preview, or None if nothing changes.
"""

import json
from collections.abc import Collection, Mapping
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from typing import Any, ClassVar, Literal

from sandyard.kit.changes.transitions import DATA, Cause, Transition, changed, created, removed
from sandyard.previews.errors import (
    FileBytesLimitError,
    FilesVersionError,
    PreviewsLimitError,
)
from sandyard.previews.files import FileChanges

UNSETTLED = datetime(9999, 12, 31, tzinfo=UTC)
"""Until when an unresolved attempt (neither recorded nor abandoned) counts as running."""
ESTIMATED_LIFE = timedelta(minutes=30)
"""The assumed lifetime of a sandbox whose end is not known."""


@dataclass(frozen=True, slots=True)
class SandboxInfo:
    """A project's sandbox, as last reported by the provider."""

    sandbox_id: str
    preview_url: str
    start_time: datetime
    end_time: datetime
    attempt: str = ""
    files_version: int = 0
    """The version of the project's files in the sandbox."""
    is_estimated: bool = False
    """Whether it is from columns without its end: only the provider knows it."""

    def as_json(self) -> dict[str, Any]:
        marker = {"migrated": True} if self.is_estimated else {}
        return marker | {
            "sandbox_id": self.sandbox_id or None,
            "preview_url": self.preview_url or None,
            "start_time": iso(self.start_time),
            "end_time": iso(self.end_time),
            "attempt": self.attempt,
            "files_version": self.files_version,
        }

    @classmethod
    def from_json(cls, stored: Mapping[str, Any]) -> "SandboxInfo":
        return cls(
            sandbox_id=stored["sandbox_id"] or "",
            preview_url=stored["preview_url"] or "",
            start_time=datetime.fromisoformat(stored["start_time"]),
            end_time=datetime.fromisoformat(stored["end_time"]),
            attempt=stored.get("attempt", ""),
            files_version=stored.get("files_version", 0),
            is_estimated=stored.get("migrated", False),
        )


@dataclass(frozen=True, slots=True)
class Attempt:
    """A caller is creating a sandbox, and must record it by then."""

    id: str
    until: datetime

    def is_over(self, now: datetime) -> bool:
        return now >= self.until


@dataclass(frozen=True, slots=True)
class Preview:
    """A project in Previews. One that never changed has the sequence 0 and no row."""

    SUBJECT: ClassVar[str] = "project_id"
    OWNER: ClassVar[str | None] = "account_id"

    project_id: str
    account_id: str
    created_at: datetime
    """When the project was created."""
    info: SandboxInfo | None = None
    attempt: Attempt | None = None
    files_version: int = 0
    last_checked: datetime | None = field(default=None, metadata=DATA)
    """When the provider last reported the sandbox; None if it never did."""
    sequence: int = 0

    @property
    def running_until(self) -> datetime | None:
        """The end of the sandbox; an attempt may have created one until it is resolved."""
        if self.attempt is not None:
            return UNSETTLED
        return None if self.info is None else self.info.end_time

    def is_running(self, *, now: datetime) -> bool:
        """Whether it counts as running: it exists, or is being created."""
        return self.running_until is not None and now < self.running_until

    @property
    def reported_at(self) -> datetime | None:
        """When the provider last reported the sandbox; at least when it was created."""
        return self.last_checked or (self.info.start_time if self.info else None)

    def has_sandbox(self, sandbox_id: str) -> bool:
        return self.info is not None and self.info.sandbox_id == sandbox_id

    def has_attempt(self, attempt_id: str) -> bool:
        return self.attempt is not None and self.attempt.id == attempt_id


@dataclass(frozen=True, slots=True)
class RunningPreviews:
    """The projects of an account whose previews run at this time, or are being created."""

    account_id: str
    at: datetime
    project_ids: frozenset[str]


@dataclass(frozen=True, slots=True)
class Quota:
    limit: int
    running: RunningPreviews

    def others(self, project_id: str) -> AbstractSet[str]:
        return self.running.project_ids - {project_id}

    def allows(self, project_id: str) -> bool:
        return len(self.others(project_id)) < self.limit

    @property
    def in_use(self) -> int:
        return len(self.running.project_ids)

    def require(self, project_id: str) -> None:
        """Raise PreviewsLimitError if the account already has that many others running."""
        if not self.allows(project_id):
            running = len(self.others(project_id))
            raise PreviewsLimitError(details={"limit": self.limit, "running": running})


def estimate_sandbox(
    sandbox_id: str | None, preview_url: str | None, *, created_at: datetime
) -> SandboxInfo | None:
    """The sandbox of a project of which only these two were stored, if there was one."""
    if sandbox_id is None and preview_url is None:
        return None
    start_time = to_milliseconds(created_at)
    return SandboxInfo(
        sandbox_id=sandbox_id or "",
        preview_url=preview_url or "",
        start_time=start_time,
        end_time=start_time + ESTIMATED_LIFE,
        is_estimated=True,
    )


def begin_attempt(
    preview: Preview, attempt: Attempt, *, quota: Quota, cause: Cause
) -> Transition[Preview]:
    """Raises PreviewsLimitError."""
    quota.require(preview.project_id)
    after = replace(preview, attempt=attempt)
    return _changed(preview, after, "preview.requested", cause, preconditions=(quota.running,))


def abandon_attempt(
    preview: Preview, attempt_id: str, *, cause: Cause
) -> Transition[Preview] | None:
    """The attempt created nothing."""
    if not preview.has_attempt(attempt_id):
        return None
    return _changed(preview, replace(preview, attempt=None), "preview.abandoned", cause)


def shorten_attempt(
    preview: Preview, attempt_id: str, *, until: datetime, cause: Cause
) -> Transition[Preview] | None:
    """It is not known whether the attempt created a sandbox: it expires sooner."""
    attempt = preview.attempt
    if attempt is None or attempt.id != attempt_id or attempt.until <= until:
        return None
    after = replace(preview, attempt=replace(attempt, until=until))
    return _changed(preview, after, "preview.attempt_shortened", cause)


def record_sandbox(
    preview: Preview, info: SandboxInfo, *, checked_at: datetime, cause: Cause
) -> Transition[Preview] | None:
    """Record the sandbox that the attempt created, if the attempt is still current."""
    if not preview.has_attempt(info.attempt):
        return None
    after = replace(preview, info=info, attempt=None, last_checked=checked_at)
    return _changed(preview, after, "preview.created", cause)


def record_files(
    preview: Preview, sandbox_id: str, *, version: int, cause: Cause
) -> Transition[Preview] | None:
    info = preview.info
    if info is None or info.sandbox_id != sandbox_id or info.files_version == version:
        return None
    after = replace(preview, info=replace(info, files_version=version))
    return _changed(preview, after, "preview.synced", cause)


@dataclass(frozen=True, slots=True)
class FileQuota:
    """A fact: whether the files of an account, with those of earlier versions, would exceed the
    limit if this project's took this size. Changes of other projects keep it true as long as they
    leave enough space."""

    account_id: str
    project_id: str
    size: int
    limit: int
    is_exceeded: bool = False

    def beside(self, others: int) -> "FileQuota":
        """The fact for this size of all else that is stored; deleted projects count until they are
        removed."""
        return replace(self, is_exceeded=self.size + others > self.limit)

    def require(self) -> None:
        if self.is_exceeded:
            raise FileBytesLimitError(details={"limit": self.limit, "project": self.size})


def change_files(
    preview: Preview, files: FileChanges, *, quota: FileQuota | None = None, cause: Cause
) -> Transition[Preview]:
    """The next version of the project's files. Its event has counts and no content. Raises
    FileBytesLimitError; a change that does not grow the files needs no quota."""
    if quota is not None:
        quota.require()
    after = replace(preview, files_version=preview.files_version + 1)
    preconditions = () if quota is None else (quota,)
    counts = {"written": len(files.written), "deleted": len(files.deleted)}
    return _changed(preview, after, "files.changed", cause, preconditions=preconditions, **counts)


def forget_versions(preview: Preview, *, cause: Cause) -> Transition[Preview]:
    """The files stay as they are, and what earlier versions had is removed."""
    return _changed(preview, preview, "versions.removed", cause)


def publish(
    preview: Preview, version: int, *, quota: FileQuota, cause: Cause
) -> Transition[Preview]:
    """Raises FileBytesLimitError."""
    quota.require()
    return _changed(
        preview,
        preview,
        "version.published",
        cause,
        preconditions=(quota,),
        published=version,
    )


def unpublish(preview: Preview, *, cause: Cause) -> Transition[Preview]:
    return _changed(preview, preview, "version.unpublished", cause)


def add_domain(preview: Preview, domain: str, *, cause: Cause) -> Transition[Preview]:
    return _changed(preview, preview, "domain.added", cause, domain=domain)


def remove_domain(preview: Preview, domain: str, *, cause: Cause) -> Transition[Preview]:
    return _changed(preview, preview, "domain.removed", cause, domain=domain)


def require_version(preview: Preview, expected: int | None) -> None:
    """Raises FilesVersionError if the files do not have the expected version."""
    if expected is not None and expected != preview.files_version:
        raise FilesVersionError(details={"version": preview.files_version})


def end(preview: Preview, *, at: datetime, cause: Cause) -> Transition[Preview] | None:
    """We have ended everything of it that was running."""
    info = preview.info
    if info is not None and at < info.end_time:
        info = replace(info, end_time=to_milliseconds(at), is_estimated=False)
    after = replace(preview, info=info, attempt=None)
    return None if after == preview else _changed(preview, after, "preview.ended", cause)


def remove(preview: Preview, *, cause: Cause) -> Transition[Preview]:
    return removed(preview, "preview.removed", cause)


def stored_anew(preview: Preview, kind: str, *, cause: Cause) -> Transition[Preview]:
    """The same preview in other columns; the event has its whole state."""
    baseline = created(preview, kind, cause, first=preview.sequence + 1)
    return replace(baseline, before=preview)


def _changed(
    before: Preview,
    after: Preview,
    kind: str,
    cause: Cause,
    *,
    preconditions: tuple[Any, ...] = (),
    **data: int | str,
) -> Transition[Preview]:
    """The sequence of a preview that is created again under the same id starts at the current time,
    so that it differs from that of the removed one. `data` is of the event alone."""
    if before.sequence:
        made = changed(before, after, kind, cause, preconditions=preconditions)
    else:
        first = cause.at_ms // 1000
        made = created(after, kind, cause, first=first, preconditions=preconditions)
    [event] = made.events
    return replace(made, events=(replace(event, data={**event.data, **data}),))


SyncOutcome = Literal["created", "updated", "installed", "restarted", "unchanged"]
"""What a sync has done: made a sandbox, sent files to it, sent what packages are installed from
or what it is started by, or nothing."""
_MANIFESTS = frozenset(
    {"package.json", "package-lock.json", "npm-shrinkwrap.json", ".npmrc"}
    | {"requirements.txt", "pyproject.toml"}
)


def sync_outcome(written: Mapping[str, bytes], deleted: Collection[str]) -> SyncOutcome:
    """Of files that were written to a running sandbox or deleted there. From a package.json that
    is not a JSON object nothing is installed."""
    paths = {*written, *deleted}
    if _MANIFESTS & paths and _is_object(written.get("package.json") or b"{}"):
        return "installed"
    if "Procfile" in paths:
        return "restarted"
    return "updated" if paths else "unchanged"


def _is_object(content: bytes) -> bool:
    try:
        return isinstance(json.loads(content.decode(errors="replace")), dict)
    except ValueError:
        return False


def may_be_running(info: SandboxInfo | None, *, now: datetime) -> bool:
    """Whether the provider must be asked: after its known end a sandbox does not run."""
    return info is not None and bool(info.sandbox_id) and (info.is_estimated or now < info.end_time)


def iso(at: datetime) -> str:
    """UTC with milliseconds, in a format of fixed width that sorts by time."""
    return at.astimezone(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def to_milliseconds(at: datetime) -> datetime:
    """As after being stored and read again."""
    return at.replace(microsecond=at.microsecond // 1000 * 1000)


def remaining_minutes(end_time: datetime, *, now: datetime) -> int:
    return max(0, int((end_time - now).total_seconds() // 60))
