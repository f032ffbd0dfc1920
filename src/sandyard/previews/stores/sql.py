"""Previews on the Platform's database, SQLite or PostgreSQL."""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Literal, TypeVar

import sqlalchemy as sa

from sandyard.kit.errors import UnavailableError
from sandyard.kit.sql import Database, Work, upsert
from sandyard.previews.errors import (
    PreviewProjectArchivedError,
    PreviewProjectNotFoundError,
    PreviewsLimitError,
)
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

T = TypeVar("T")
Reads = Literal["new", "old"]


class SqlPreviewStore:
    def __init__(self, database: Database, *, reads: Reads = "new") -> None:
        self._database = database
        self._reads = reads
        self._statements: _Statements | None = None

    async def find(self, project_id: str, *, account_id: str) -> Preview | None:
        def work(connection: sa.Connection, statements: _Statements) -> Preview | None:
            values = {"of_project": project_id, "of_account": account_id}
            row = connection.execute(statements.find, values).first()
            return None if row is None else self._preview(row, has_old=statements.has_old)

        return await self._with_statements(self._database.read, work)

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
        def work(connection: sa.Connection, statements: _Statements) -> bool:
            values = statements.values(seen, info) | {"of_attempt": attempt_id}
            return connection.execute(statements.record, values).rowcount == 1

        return await self._with_statements(self._database.write, work)

    async def give_up(self, seen: Preview, *, attempt_id: str) -> bool:
        return await self._set_attempt(
            seen, attempt_id, preview_attempt=None, preview_attempt_until=None
        )

    async def shorten(self, seen: Preview, attempt: Attempt) -> bool:
        return await self._set_attempt(seen, attempt.id, preview_attempt_until=attempt.until)

    async def update(self, seen: Preview, info: SandboxInfo) -> bool:
        def work(connection: sa.Connection, statements: _Statements) -> bool:
            values = statements.values(seen, info) | {"of_revision": seen.revision}
            return connection.execute(statements.update, values).rowcount == 1

        return await self._with_statements(self._database.write, work)

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
                rows = connection.execute(
                    sa.select(column).where(column.in_(attempts), _project.deleted_at.is_(None))
                )
                found |= {each for (each,) in rows}
            return found

        return await self._database.read(work)

    async def running_of_deleted(self, *, now: datetime) -> Sequence[tuple[str, SandboxInfo]]:
        def work(connection: sa.Connection) -> Sequence[tuple[str, SandboxInfo]]:
            rows = connection.execute(
                sa.select(_project.project_id, _project.sandbox_info).where(
                    _project.deleted_at.is_not(None),
                    _info_field(connection, "end_time") > iso(now),
                )
            )
            return [(row.project_id, SandboxInfo.from_json(row.sandbox_info)) for row in rows]

        return await self._database.read(work)

    async def record_end(self, project_id: str, info: SandboxInfo) -> None:
        statement = (
            projects.update()
            .where(_project.project_id == project_id, _project.deleted_at.is_not(None))
            .values(sandbox_info=info.as_json())
        )
        await self._database.write(lambda connection: connection.execute(statement))

    async def _set_attempt(self, seen: Preview, attempt_id: str, **values: Any) -> bool:
        statement = (
            projects.update()
            .where(_project.project_id == seen.project_id, _project.preview_attempt == attempt_id)
            .values(preview_revision=_project.preview_revision + 1, **values)
        )
        return await self._database.write(
            lambda connection: connection.execute(statement).rowcount == 1
        )

    async def _with_statements(
        self,
        run: Callable[[Work[T]], Awaitable[T]],
        work: Callable[[sa.Connection, "_Statements"], T],
    ) -> T:
        """Once more with other statements, if the migration changed the columns under them."""
        statements = self._statements or await self._build()
        try:
            return await run(lambda connection: work(connection, statements))
        except UnavailableError:
            built = await self._build()
            if built.has_old == statements.has_old:
                raise
            return await run(lambda connection: work(connection, built))

    async def _build(self) -> "_Statements":
        there = await self._database.read(
            lambda connection: sa.inspect(connection).get_columns("projects", schema="platform")
        )
        has_old = set(OLD_COLUMNS) <= {column["name"] for column in there}
        self._statements = _build_statements(has_old=has_old)
        return self._statements

    def _preview(self, row: Any, *, has_old: bool) -> Preview:
        info = SandboxInfo.from_json(row.sandbox_info) if row.sandbox_info else None
        if self._reads == "old" and has_old:
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

    def _change(self, connection: sa.Connection, seen: Preview, **values: Any) -> bool:
        statement = (
            projects.update()
            .where(*_as_seen(seen))
            .values(preview_revision=_project.preview_revision + 1, **values)
        )
        return connection.execute(statement).rowcount == 1


@dataclass(frozen=True, slots=True)
class _Statements:
    """Built once, since that takes longer than running them."""

    has_old: bool
    """Whether the migration has not yet dropped the old columns."""
    find: sa.Select[Any]
    update: sa.Update
    record: sa.Update

    def values(self, seen: Preview, info: SandboxInfo) -> dict[str, Any]:
        values = {"of_project": seen.project_id, "info": info.as_json()}
        if self.has_old:
            values |= {"box": info.sandbox_id, "url": info.preview_url}
        return values


def _build_statements(*, has_old: bool) -> _Statements:
    columns = [column for column in _project if has_old or column.name not in OLD_COLUMNS]
    of_project = _project.project_id == sa.bindparam("of_project")
    written: dict[str, Any] = {"sandbox_info": sa.bindparam("info")}
    if has_old:
        written |= {"sandbox_id": sa.bindparam("box"), "preview_url": sa.bindparam("url")}
    write = projects.update().values(preview_revision=_project.preview_revision + 1, **written)
    return _Statements(
        has_old=has_old,
        find=sa.select(*columns).where(
            of_project,
            _project.owner_account_id == sa.bindparam("of_account"),
            _project.deleted_at.is_(None),
        ),
        update=write.where(
            of_project,
            _project.preview_revision == sa.bindparam("of_revision"),
            _project.deleted_at.is_(None),
        ),
        record=write.where(
            of_project, _project.preview_attempt == sa.bindparam("of_attempt")
        ).values(preview_attempt=None, preview_attempt_until=None),
    )


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
            _project.deleted_at.is_(None),
            sa.or_(runs, being_made),
        )
    ).scalar_one()
    if running >= running_limit:
        raise PreviewsLimitError(details={"limit": running_limit, "running": running})


def _info_field(connection: sa.Connection, name: str) -> sa.ColumnElement[str]:
    if connection.dialect.name == "sqlite":
        return sa.func.json_extract(_project.sandbox_info, f"$.{name}", type_=sa.String)
    return sa.cast(_project.sandbox_info.op("->>")(name), sa.String)


def _lock_files(connection: sa.Connection, project_id: str) -> int:
    """The version; the project is neither deleted nor archived before the commit."""
    project = connection.execute(
        sa.select(_project.files_version, _project.status)
        .where(_project.project_id == project_id, _project.deleted_at.is_(None))
        .with_for_update()
    ).first()
    if project is None:
        raise PreviewProjectNotFoundError
    if project.status == "archived":
        raise PreviewProjectArchivedError
    version: int = project.files_version
    return version


def _change_files(
    connection: sa.Connection,
    project_id: str,
    changes: ChangeSet,
    limits: FileLimits,
    now: datetime,
) -> int:
    version = _lock_files(connection, project_id)
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
