"""Files of projects and their earlier versions on SQLite or PostgreSQL."""

from collections.abc import Collection, Mapping, Sequence
from hashlib import sha256
from typing import Any

import sqlalchemy as sa

from sandyard.kit.changes.transitions import Transition
from sandyard.kit.sql.database import Database, upsert
from sandyard.previews.files import Entry, FileChanges, ProjectFile, Version, readable
from sandyard.previews.model import Preview
from sandyard.previews.stores import tables

_preview = tables.previews.c
_file = tables.project_files.c
_past = tables.past_files.c
_content = tables.past_contents.c
_version = tables.file_versions.c
_PUBLISHED = (
    tables.published_files,
    tables.publications,
    tables.published_domains,
    tables.publish_attempts,
)
_FILE_TABLES = (
    *_PUBLISHED,
    tables.project_files,
    tables.past_files,
    tables.past_contents,
    tables.file_versions,
)


class SqlFiles:
    """Reads the files of projects."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def count_files(self, project_id: str) -> int:
        statement = sa.select(sa.func.count()).where(
            _file.project_id == project_id, _file.is_deleted.is_(False)
        )
        return await self._database.read(
            lambda connection: int(connection.execute(statement).scalar_one())
        )

    async def files(
        self,
        project_id: str,
        *,
        version: int | None = None,
        paths: Collection[str] | None = None,
    ) -> Sequence[ProjectFile]:
        rows = await self._at(project_id, version, paths, with_content=True)
        return [ProjectFile(row.path, bytes(row.content), row.version) for row in rows]

    async def entries(self, project_id: str, *, version: int | None = None) -> Mapping[str, Entry]:
        rows = await self._at(project_id, version, None, with_content=False)
        return {row.path: Entry(row.size, row.version) for row in rows}

    async def _at(
        self,
        project_id: str,
        version: int | None,
        paths: Collection[str] | None,
        *,
        with_content: bool,
    ) -> Sequence[Any]:
        """Files of the version, or the current ones; of earlier ones from both tables, at once."""
        current = sa.select(_file.path, _file.version, _file.size).where(
            _file.project_id == project_id, _file.is_deleted.is_(False)
        )
        past = sa.select(_past.path, _past.version, _past.size).where(
            _past.project_id == project_id
        )
        if with_content:
            is_content = (_content.project_id == _past.project_id) & (_content.hash == _past.hash)
            current = current.add_columns(_file.content)
            past = past.add_columns(_content.content).join(tables.past_contents, is_content)
        if paths is not None:
            current = current.where(_file.path.in_(paths))
            past = past.where(_past.path.in_(paths))
        statement: Any = current.order_by(_file.path)
        if version is not None:
            past = past.where(_past.version <= version, _past.until > version)
            both = current.where(_file.version <= version).union_all(past).subquery()
            statement = sa.select(both).order_by(both.c.path)
        return await self._database.read(lambda connection: connection.execute(statement).all())

    async def versions(self, project_id: str) -> Sequence[Version]:
        current = sa.select(_preview.files_version).where(_preview.project_id == project_id)
        all_of_it = sa.select(tables.file_versions, current.scalar_subquery().label("current"))
        statement = all_of_it.where(_version.project_id == project_id)
        rows = await self._database.read(lambda connection: connection.execute(statement).all())
        found = [
            Version(row.version, row.author, row.created_at, row.message, row.files, row.size_bytes)
            for row in rows
        ]
        return readable(found, rows[0].current) if rows else []

    async def changes_since(
        self, project_id: str, version: int
    ) -> tuple[Mapping[str, bytes], Sequence[str], int]:
        version_now = sa.select(_preview.files_version).where(_preview.project_id == project_id)
        newer = sa.select(tables.project_files).where(
            _file.project_id == project_id, _file.version > version
        )

        def work(connection: sa.Connection) -> tuple[Mapping[str, bytes], Sequence[str], int]:
            current = connection.execute(version_now).scalar() or 0
            rows = connection.execute(newer).all()
            written = {row.path: bytes(row.content) for row in rows if not row.is_deleted}
            return written, [row.path for row in rows if row.is_deleted], current

        return await self._database.read(work)


def has_files() -> sa.ColumnElement[bool]:
    """Whether a preview's project has some, in any version."""
    current = sa.exists().where(
        _file.project_id == _preview.project_id, _file.is_deleted.is_(False)
    )
    return current | sa.exists().where(_content.project_id == _preview.project_id)


def stored_bytes(connection: sa.Connection, account_id: str, *, besides: str | None) -> int:
    """Of the files of an account's projects, one excepted, and of all earlier versions."""
    of_files = sa.select(sa.func.coalesce(sa.func.sum(_file.size), 0)).where(
        _file.project_id == _preview.project_id,
        _preview.account_id == account_id,
        _preview.project_id != (besides or ""),
    )
    of_past = sa.select(sa.func.coalesce(sa.func.sum(_content.size), 0)).where(
        _content.project_id == _preview.project_id, _preview.account_id == account_id
    )
    return sum(int(connection.execute(each).scalar_one()) for each in (of_files, of_past))


def remove_files(connection: sa.Connection, project_id: str) -> None:
    for table in _FILE_TABLES:
        connection.execute(table.delete().where(table.c.project_id == project_id))


def write_files(
    connection: sa.Connection, transition: Transition[Preview], files: FileChanges
) -> None:
    after = transition.result
    project_id, version = after.project_id, after.files_version
    oldest = version - files.keeps + 1
    if files.message is not None:
        last = sa.select(sa.func.max(_version.version)).where(_version.project_id == project_id)
        if connection.execute(last).scalar() == version - 1:
            _keep_replaced(connection, project_id, files.replaced, until=version)
        else:  # another release wrote the last version, and kept nothing of those before
            oldest = version
        author = transition.events[0].actor
        made = (author, files.at, files.message, files.count_after, files.size_after)
        row = dict(zip(_version.keys(), (project_id, version, *made), strict=True))
        connection.execute(tables.file_versions.insert().values(row))
    _write_current(connection, after, files)
    if not files.keeps:
        for table in (*_PUBLISHED, tables.past_contents):
            connection.execute(table.delete().where(table.c.project_id == project_id))
    _forget(connection, project_id, oldest)


def _keep_replaced(
    connection: sa.Connection, project_id: str, replaced: Sequence[ProjectFile], *, until: int
) -> None:
    if not replaced:
        return
    contents = {each.path: each.content for each in replaced}
    hashes = store_contents(connection, project_id, contents)
    connection.execute(
        tables.past_files.insert(),
        [
            {
                "project_id": project_id,
                "path": each.path,
                "version": each.version,
                "until": until,
                "hash": hashes[each.path],
                "size": len(each.content),
            }
            for each in replaced
        ],
    )


def store_contents(
    connection: sa.Connection, project_id: str, contents: Mapping[str, bytes]
) -> Mapping[str, str]:
    """Each once; returns the hashes by the same keys."""
    hashes = {path: sha256(content).hexdigest() for path, content in contents.items()}
    by_hash = {hashes[path]: content for path, content in contents.items()}
    connection.execute(
        upsert(connection, tables.past_contents).on_conflict_do_nothing(),
        [
            {"project_id": project_id, "hash": key, "content": content, "size": len(content)}
            for key, content in sorted(by_hash.items())
        ],
    )
    return hashes


def _write_current(connection: sa.Connection, after: Preview, files: FileChanges) -> None:
    contents = dict(files.written) | dict.fromkeys(files.deleted, b"")
    if not contents:
        return
    statement = upsert(connection, tables.project_files)
    columns = ("content", "size", "is_deleted", "version", "updated_at")
    statement = statement.on_conflict_do_update(
        index_elements=[_file.project_id, _file.path],
        set_={column: statement.excluded[column] for column in columns},
    )
    connection.execute(
        statement,
        [
            {
                "project_id": after.project_id,
                "path": path,
                "content": content,
                "size": len(content),
                "is_deleted": path in files.deleted,
                "version": after.files_version,
                "updated_at": files.at,
            }
            for path, content in sorted(contents.items())
        ],
    )


def _forget(connection: sa.Connection, project_id: str, oldest: int) -> None:
    """What only versions before this one have."""
    connection.execute(
        tables.file_versions.delete().where(
            _version.project_id == project_id, _version.version < oldest
        )
    )
    removed = connection.execute(
        tables.past_files.delete().where(_past.project_id == project_id, _past.until <= oldest)
    )
    if removed.rowcount:
        remove_unnamed(connection, project_id)


def remove_unnamed(connection: sa.Connection, project_id: str) -> None:
    """Contents that neither a version nor what is published names any more."""
    unnamed = tables.past_contents.delete().where(_content.project_id == project_id)
    for table in (tables.past_files, tables.published_files):
        same = (table.c.project_id == project_id) & (table.c.hash == _content.hash)
        unnamed = unnamed.where(~sa.exists().where(same))
    connection.execute(unnamed)
