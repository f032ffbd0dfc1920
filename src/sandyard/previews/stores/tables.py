"""Previews' SQL tables, as the queries see them; the migrations make them."""

from collections.abc import Mapping
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any, Literal, cast

import sqlalchemy as sa

from sandyard.kit.changes.transitions import Entity
from sandyard.kit.sql.column_types import Json, UtcTime
from sandyard.kit.sql.events import event_table
from sandyard.kit.sql.job_leases import job_table
from sandyard.kit.sql.transitions import EntityTable
from sandyard.previews.model import Attempt, Preview, SandboxInfo, estimate_sandbox, iso

SCHEMA = "previews"
metadata = sa.MetaData(schema=SCHEMA)
previews = sa.Table(
    "previews",
    metadata,
    sa.Column("project_id", sa.String(25), primary_key=True),
    sa.Column("account_id", sa.String(12), nullable=False),
    sa.Column("created_at", UtcTime, nullable=False),
    sa.Column("sandbox_id", sa.Text),
    sa.Column("preview_url", sa.Text),
    sa.Column("sandbox_info", Json),
    sa.Column("attempt", sa.String(64)),
    sa.Column("attempt_until", UtcTime),
    sa.Column("running_until", UtcTime),
    sa.Column("files_version", sa.Integer, nullable=False),
    sa.Column("last_checked", UtcTime),
    sa.Column("sequence", sa.BigInteger, nullable=False),
)
"""A row for every project that ever had files or a preview. `created_at` is the project's;
`running_until` is `Preview.running_until`, for queries. `sandbox_info` replaces `sandbox_id` and
`preview_url`; all are written while they exist."""
project_files = sa.Table(
    "project_files",
    metadata,
    sa.Column("project_id", sa.String(25), primary_key=True),
    sa.Column("path", sa.String(512), primary_key=True),
    sa.Column("content", sa.LargeBinary, nullable=False),
    sa.Column("size", sa.Integer, nullable=False),
    sa.Column("is_deleted", sa.Boolean, nullable=False),
    sa.Column("version", sa.Integer, nullable=False),
    sa.Column("updated_at", UtcTime, nullable=False),
)
"""The current files, one row per path; `version` is that of the last change set that wrote or
deleted it."""
file_versions = sa.Table(
    "file_versions",
    metadata,
    sa.Column("project_id", sa.String(25), primary_key=True),
    sa.Column("version", sa.Integer, primary_key=True),
    sa.Column("author", sa.String(200), nullable=False),
    sa.Column("created_at", UtcTime, nullable=False),
    sa.Column("message", sa.Text, nullable=False),
    sa.Column("files", sa.Integer, nullable=False),
    sa.Column("size_bytes", sa.BigInteger, nullable=False),
)
past_files = sa.Table(
    "past_files",
    metadata,
    sa.Column("project_id", sa.String(25), primary_key=True),
    sa.Column("path", sa.String(512), primary_key=True),
    sa.Column("version", sa.Integer, primary_key=True),
    sa.Column("until", sa.Integer, nullable=False),
    sa.Column("hash", sa.String(64), nullable=False),
    sa.Column("size", sa.Integer, nullable=False),
)
"""What was at a path from `version` on and was replaced by `until`."""
past_contents = sa.Table(
    "past_contents",
    metadata,
    sa.Column("project_id", sa.String(25), primary_key=True),
    sa.Column("hash", sa.String(64), primary_key=True),
    sa.Column("content", sa.LargeBinary, nullable=False),
    sa.Column("size", sa.Integer, nullable=False),
)
"""The contents of `past_files` and `published_files`, each once, by SHA-256."""
publications = sa.Table(
    "publications",
    metadata,
    sa.Column("project_id", sa.String(25), primary_key=True),
    sa.Column("version", sa.Integer, nullable=False),
    sa.Column("root", sa.String(512), nullable=False),
    sa.Column("fallback", sa.String(512)),
    sa.Column("published_at", UtcTime, nullable=False),
)
published_files = sa.Table(
    "published_files",
    metadata,
    sa.Column("project_id", sa.String(25), primary_key=True),
    sa.Column("path", sa.String(512), primary_key=True),
    sa.Column("hash", sa.String(64), nullable=False),
)
"""Their contents are among `past_contents` too."""
published_domains = sa.Table(
    "published_domains",
    metadata,
    sa.Column("domain", sa.String(253), primary_key=True),
    sa.Column("project_id", sa.String(25), nullable=False),
)
jobs = job_table(metadata)
events = event_table(metadata)
SUBJECTS = (previews.c.project_id,)
"""The subjects of events."""
OLD_COLUMNS = ("sandbox_id", "preview_url")
COLUMNS_SEC = 5.0
"""A server notices within this time that the old columns are back."""
Reads = Literal["new", "old"]


@dataclass(frozen=True, slots=True)
class PreviewTable(EntityTable[Preview]):
    entity: type[Preview] = Preview
    table: sa.Table = previews
    has_old: bool = True
    """Whether the old columns exist; if so they are written too."""
    reads: Reads = "new"

    def row(self, entity: Entity) -> dict[str, Any]:
        preview = cast("Preview", entity)
        info, attempt = preview.info, preview.attempt
        old = {
            "sandbox_id": info and (info.sandbox_id or None),
            "preview_url": info and (info.preview_url or None),
        }
        return (old if self.has_old else {}) | {
            "project_id": preview.project_id,
            "account_id": preview.account_id,
            "created_at": preview.created_at,
            "sandbox_info": info and info.as_json(),
            "attempt": attempt and attempt.id,
            "attempt_until": attempt and attempt.until,
            "running_until": preview.running_until,
            "files_version": preview.files_version,
            "last_checked": preview.last_checked,
            "sequence": preview.sequence,
        }

    def preview(self, row: Any) -> Preview:
        recorded = SandboxInfo.from_json(row.sandbox_info) if row.sandbox_info else None
        info = recorded
        if self.has_old and (recorded is None or self.reads == "old"):
            info = _info_of_old(row, recorded)
        return Preview(
            project_id=row.project_id,
            account_id=row.account_id,
            created_at=row.created_at,
            info=info,
            attempt=None if row.attempt is None else Attempt(row.attempt, row.attempt_until),
            files_version=row.files_version,
            last_checked=row.last_checked if info is recorded else None,
            sequence=row.sequence,
        )

    def preview_with(self, row: Any, values: Mapping[str, Any]) -> Preview:
        return self.preview(SimpleNamespace(**{**row._mapping, **values}))  # noqa: SLF001 - public


def migrated_info(row: Any) -> dict[str, Any] | None:
    """The exact `sandbox_info` for a row that has only the old columns; `migrated` marks it, so
    that a rollback knows what to remove."""
    info = _estimated(row)
    if info is None:
        return None
    return {
        "sandbox_id": row.sandbox_id,
        "preview_url": row.preview_url,
        "start_time": iso(info.start_time),
        "end_time": iso(info.end_time),
        "migrated": True,
    }


def has_old_columns(connection: sa.Connection) -> bool:
    columns = sa.inspect(connection).get_columns(previews.name, schema=SCHEMA)
    return set(OLD_COLUMNS) <= {column["name"] for column in columns}


def _info_of_old(row: Any, info: SandboxInfo | None) -> SandboxInfo | None:
    """The sandbox of the old columns; its times are those of `sandbox_info`, if that is of the same
    sandbox."""
    if info is not None and info.sandbox_id == (row.sandbox_id or ""):
        return info
    return _estimated(row)


def _estimated(row: Any) -> SandboxInfo | None:
    return estimate_sandbox(row.sandbox_id, row.preview_url, created_at=row.created_at)
