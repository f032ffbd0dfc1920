"""Previews on the Platform's database, SQLite or PostgreSQL."""

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any, Literal

import sqlalchemy as sa

from sandyard.kit.sql import Database, upsert
from sandyard.previews.errors import PreviewsLimitError
from sandyard.previews.model import (
    Attempt,
    ChangeSet,
    FileLimits,
    Preview,
    ProjectFile,
    SandboxInfo,
    check_changes,
    iso,
)
from sandyard.previews.stores.old_columns import OLD_COLUMNS, info_of_old
from sandyard.previews.stores.tables import project_files, projects, users

_project = projects.c
_file = project_files.c

Reads = Literal["new", "old"]


class SqlPreviewStore:
    def __init__(self, database: Database, *, reads: Reads = "new") -> None:
        self._database = database
        self._reads = reads
        self._has_old: bool | None = None

    async def find(self, project_id: str, *, account_id: str) -> Preview | None:
        def work(connection: sa.Connection) -> Preview | None:
            row = connection.execute(
                sa.select(*self._columns(connection)).where(
                    _project.project_id == project_id,
                    _project.owner_account_id == account_id,
                    _project.deleted_at.is_(None),
                )
            ).first()
            return None if row is None else self._preview(row)

        return await self._database.read(work)

    async def begin(
        self, seen: Preview, attempt: Attempt, *, running_limit: int, now: datetime
    ) -> bool:
        def work(connection: sa.Connection) -> bool:
            _require_room(connection, seen, running_limit, now)
            return self._change(
                connection,
                seen,
                preview_attempt=attempt.id,
                preview_attempt_until=attempt.until,
            )

        return await self._database.write(work)

    async def record(self, seen: Preview, info: SandboxInfo, *, attempt_id: str) -> bool:
        stands = (
            _project.project_id == seen.project_id,
            _project.preview_attempt == attempt_id,
        )
        return await self._database.write(
            lambda connection: self._write(
                connection, stands, info, preview_attempt=None, preview_attempt_until=None
            )
        )

    async def give_up(self, seen: Preview, *, attempt_id: str) -> bool:
        statement = (
            projects.update()
            .where(_project.project_id == seen.project_id, _project.preview_attempt == attempt_id)
            .values(
                preview_attempt=None,
                preview_attempt_until=None,
                preview_revision=_project.preview_revision + 1,
            )
        )
        return await self._database.write(
            lambda connection: connection.execute(statement).rowcount == 1
        )

    async def update(self, seen: Preview, info: SandboxInfo) -> bool:
        return await self._database.write(
            lambda connection: self._write(connection, _as_seen(seen), info)
        )

    async def count_files(self, project_id: str) -> int:
        statement = sa.select(sa.func.count()).where(
            _file.project_id == project_id, _file.is_deleted.is_(False)
        )
        return await self._database.read(
            lambda connection: int(connection.execute(statement).scalar_one())
        )

    async def files(self, project_id: str) -> Sequence[ProjectFile]:
        statement = (
            sa.select(project_files)
            .where(_file.project_id == project_id, _file.is_deleted.is_(False))
            .order_by(_file.path)
        )
        rows = await self._database.read(lambda connection: connection.execute(statement).all())
        return [ProjectFile(row.path, bytes(row.content), row.version) for row in rows]

    async def changes_since(
        self, project_id: str, version: int
    ) -> tuple[Mapping[str, bytes], Sequence[str], int]:
        def work(connection: sa.Connection) -> tuple[Mapping[str, bytes], Sequence[str], int]:
            current = connection.execute(
                sa.select(_project.files_version).where(_project.project_id == project_id)
            ).scalar_one()
            rows = connection.execute(
                sa.select(project_files).where(
                    _file.project_id == project_id, _file.version > version
                )
            ).all()
            written = {row.path: bytes(row.content) for row in rows if not row.is_deleted}
            return written, [row.path for row in rows if row.is_deleted], current

        return await self._database.read(work)

    async def change_files(
        self, project_id: str, changes: ChangeSet, *, limits: FileLimits, now: datetime
    ) -> int:
        def work(connection: sa.Connection) -> int:
            return _change_files(connection, project_id, changes, limits, now)

        return await self._database.write(work)

    async def known_attempts(self, attempts: Sequence[str]) -> set[str]:
        def work(connection: sa.Connection) -> set[str]:
            recorded = _info_field(connection, "attempt")
            found: set[str] = set()
            for column in (recorded, _project.preview_attempt):
                rows = connection.execute(sa.select(column).where(column.in_(attempts)))
                found |= {each for (each,) in rows}
            return found

        return await self._database.read(work)

    def _columns(self, connection: sa.Connection) -> list[sa.ColumnElement[Any]]:
        """All but those that the migration has dropped."""
        if self._has_old is None:
            there = sa.inspect(connection).get_columns("projects", schema="platform")
            self._has_old = set(OLD_COLUMNS) <= {column["name"] for column in there}
        return [column for column in _project if self._has_old or column.name not in OLD_COLUMNS]

    def _preview(self, row: Any) -> Preview:
        info = SandboxInfo.from_json(row.sandbox_info) if row.sandbox_info else None
        if self._reads == "old" and self._has_old:
            info = info_of_old(row, info)
        attempt = None
        if row.preview_attempt is not None:
            attempt = Attempt(row.preview_attempt, row.preview_attempt_until)
        return Preview(
            project_id=row.project_id,
            account_id=row.owner_account_id,
            is_archived=row.status == "archived",
            info=info,
            attempt=attempt,
            files_version=row.files_version,
            revision=row.preview_revision,
        )

    def _write(
        self,
        connection: sa.Connection,
        conditions: Sequence[sa.ColumnElement[bool]],
        info: SandboxInfo,
        **values: Any,
    ) -> bool:
        self._columns(connection)
        if self._has_old:
            values |= {"sandbox_id": info.sandbox_id, "preview_url": info.preview_url}
        statement = (
            projects.update()
            .where(*conditions)
            .values(
                sandbox_info=info.as_json(),
                preview_revision=_project.preview_revision + 1,
                **values,
            )
        )
        return connection.execute(statement).rowcount == 1

    def _change(self, connection: sa.Connection, seen: Preview, **values: Any) -> bool:
        statement = (
            projects.update()
            .where(*_as_seen(seen))
            .values(preview_revision=_project.preview_revision + 1, **values)
        )
        return connection.execute(statement).rowcount == 1


def _as_seen(seen: Preview) -> tuple[sa.ColumnElement[bool], ...]:
    return (
        _project.project_id == seen.project_id,
        _project.preview_revision == seen.revision,
        _project.deleted_at.is_(None),
    )


def _require_room(
    connection: sa.Connection, seen: Preview, running_limit: int, now: datetime
) -> None:
    """The account's row is held until the commit, so that no two starts see the same room."""
    connection.execute(
        sa.select(users.c.id).where(users.c.account_id == seen.account_id).with_for_update()
    )
    runs = _info_field(connection, "end_time") > iso(now)
    being_made = _project.preview_attempt_until > now
    running = connection.execute(
        sa.select(sa.func.count()).where(
            _project.owner_account_id == seen.account_id,
            _project.project_id != seen.project_id,
            sa.or_(runs, being_made),
        )
    ).scalar_one()
    if running >= running_limit:
        raise PreviewsLimitError(details={"limit": running_limit, "running": running})


def _info_field(connection: sa.Connection, name: str) -> sa.ColumnElement[str]:
    if connection.dialect.name == "sqlite":
        return sa.func.json_extract(_project.sandbox_info, f"$.{name}", type_=sa.String)
    return sa.cast(_project.sandbox_info.op("->>")(name), sa.String)


def _change_files(
    connection: sa.Connection,
    project_id: str,
    changes: ChangeSet,
    limits: FileLimits,
    now: datetime,
) -> int:
    version: int = connection.execute(
        sa.select(_project.files_version).where(_project.project_id == project_id).with_for_update()
    ).scalar_one()
    there = {
        row.path: row
        for row in connection.execute(
            sa.select(project_files).where(
                _file.project_id == project_id, _file.is_deleted.is_(False)
            )
        )
    }
    check_changes(changes, {path: row.size for path, row in there.items()}, limits)
    deleted = there.keys() & changes.deleted
    if changes.is_whole:
        deleted |= there.keys() - changes.written.keys()
    written = {
        path: content
        for path, content in changes.written.items()
        if path not in there or bytes(there[path].content) != content
    }
    if not written and not deleted:
        return version
    contents = written | dict.fromkeys(deleted, b"")
    for path, content in sorted(contents.items()):
        row = {
            "content": content,
            "size": len(content),
            "is_deleted": path in deleted,
            "version": version + 1,
            "updated_at": now,
        }
        statement = upsert(connection, project_files).values(
            project_id=project_id, path=path, **row
        )
        connection.execute(
            statement.on_conflict_do_update(index_elements=[_file.project_id, _file.path], set_=row)
        )
    connection.execute(
        projects.update().where(_project.project_id == project_id).values(files_version=version + 1)
    )
    return version + 1
