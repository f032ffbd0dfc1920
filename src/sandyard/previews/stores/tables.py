"""Previews' SQL tables."""

from collections.abc import Mapping
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any, Literal, cast

import sqlalchemy as sa

from sandyard.kit.changes.transitions import Entity
from sandyard.kit.sql.column_types import Json, UtcTime, Varchar, byte_ordered
from sandyard.kit.sql.columns import belongs_to, event_table, index, metadata_of, optional, required
from sandyard.kit.sql.job_leases import job_table
from sandyard.kit.sql.transitions import EntityTable
from sandyard.previews.model import Attempt, Preview, SandboxInfo, estimate_sandbox, iso

SCHEMA = "previews"
metadata = metadata_of(SCHEMA)
previews = sa.Table(
    "previews",
    metadata,
    sa.Column("project_id", Varchar(25), primary_key=True),
    *required(Varchar(12), "account_id"),
    *required(UtcTime, "created_at"),
    sa.Column("sandbox_id", sa.Text, system=True),
    sa.Column("preview_url", sa.Text, system=True),
    *optional(Json, "sandbox_info"),
    *optional(Varchar(64), "attempt"),
    *optional(UtcTime, "attempt_until", "running_until"),
    *required(sa.Integer, "files_version"),
    *required(sa.BigInteger().with_variant(sa.Integer, "sqlite"), "sequence"),
    *optional(UtcTime, "last_checked"),
    index("account_id, running_until", name="previews_of_account"),
    index("running_until", name="previews_running"),
    index("attempt"),
)
"""A row for every project that ever had files or a preview. `created_at` is the project's;
`running_until` is `Preview.running_until`, for queries. `sandbox_info` replaces `sandbox_id` and
`preview_url`, which only databases of 0.2.0 have; all are written while they exist."""


def _project() -> sa.Column[Any]:
    return belongs_to(previews.c.project_id, "project_id", primary_key=True)


project_files = sa.Table(
    "project_files",
    metadata,
    _project(),
    sa.Column("path", byte_ordered(512), primary_key=True),
    *required(sa.LargeBinary, "content"),
    *required(sa.Integer, "size"),
    *required(sa.Boolean, "is_deleted"),
    *required(sa.Integer, "version"),
    *required(UtcTime, "updated_at"),
    index("project_id, version", name="project_files_version"),
    # for listings without contents, which lie between the columns of a row
    index("project_id, is_deleted, path, size, version", name="project_files_entries"),
)
"""The current files, one row per path; `version` is that of the last change set that wrote or
deleted it."""
file_versions = sa.Table(
    "file_versions",
    metadata,
    _project(),
    sa.Column("version", sa.Integer, primary_key=True),
    *required(Varchar(200), "author"),
    *required(UtcTime, "created_at"),
    *required(sa.Text, "message"),
    *required(sa.Integer, "files"),
    *required(sa.BigInteger, "size_bytes"),
)
past_files = sa.Table(
    "past_files",
    metadata,
    _project(),
    sa.Column("path", byte_ordered(512), primary_key=True),
    sa.Column("version", sa.Integer, primary_key=True),
    *required(sa.Integer, "until"),
    *required(Varchar(64), "hash"),
    *required(sa.Integer, "size"),
    index("project_id, until", name="past_files_until"),
    index("project_id, hash", name="past_files_hash"),
)
"""What was at a path from `version` on and was replaced by `until`."""
past_contents = sa.Table(
    "past_contents",
    metadata,
    _project(),
    sa.Column("hash", Varchar(64), primary_key=True),
    *required(sa.LargeBinary, "content"),
    *required(sa.Integer, "size"),
    index("project_id, size", name="past_contents_size"),
)
"""The contents of `past_files` and `published_files`, each once, by SHA-256."""
publications = sa.Table(
    "publications",
    metadata,
    _project(),
    *required(sa.Integer, "version"),
    *required(Varchar(8), "mode"),
    *required(Varchar(512), "root"),
    *optional(Varchar(512), "fallback"),
    *required(UtcTime, "published_at"),
    *optional(Varchar(25), "sandbox_id"),
)
publish_attempts = sa.Table(
    "publish_attempts",
    metadata,
    _project(),
    *required(Varchar(64), "id"),
    *required(sa.Integer, "version"),
    *required(Varchar(8), "mode"),
    *required(UtcTime, "until"),
    *optional(sa.Text, "failure"),
    *required(Json, "last_lines"),
)
"""Progress, which is no state: what it leads to is a publication."""
published_files = sa.Table(
    "published_files",
    metadata,
    _project(),
    sa.Column("path", byte_ordered(512), primary_key=True),
    *required(Varchar(64), "hash"),
    index("project_id, hash", name="published_files_hash"),
)
"""Their contents are among `past_contents` too."""
published_domains = sa.Table(
    "published_domains",
    metadata,
    sa.Column("domain", Varchar(253), primary_key=True),
    belongs_to(previews.c.project_id, "project_id"),
    index("project_id", name="published_domains_project"),
)
jobs = job_table(metadata)
events = event_table(metadata, of_accounts=True)
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
