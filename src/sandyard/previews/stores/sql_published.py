"""Published versions on SQLite or PostgreSQL."""

from collections.abc import Collection, Sequence

import sqlalchemy as sa

from sandyard.previews.files import ProjectFile, Publication, PublicationChange
from sandyard.previews.stores import tables
from sandyard.previews.stores.sql_files import SqlFiles, remove_unnamed, store_contents

_publication = tables.publications.c
_file = tables.published_files.c
_content = tables.past_contents.c


class SqlPublished(SqlFiles):
    async def publication(self, project_id: str) -> Publication | None:
        columns = [each for each in _publication if each.name != "project_id"]
        statement = sa.select(*columns).where(_publication.project_id == project_id)
        row = await self._database.read(lambda connection: connection.execute(statement).first())
        return None if row is None else Publication(**row._mapping)  # noqa: SLF001 - public

    async def published(self, project_id: str, paths: Collection[str]) -> Sequence[ProjectFile]:
        statement = (
            sa.select(_file.path, _content.content, _publication.version)
            .join(tables.publications, _publication.project_id == _file.project_id)
            .join(
                tables.past_contents,
                (_content.project_id == _file.project_id) & (_content.hash == _file.hash),
            )
            .where(_file.project_id == project_id, _file.path.in_(paths))
        )
        rows = await self._database.read(lambda connection: connection.execute(statement).all())
        return [ProjectFile(row.path, bytes(row.content), row.version) for row in rows]


def write_publication(
    connection: sa.Connection, project_id: str, change: PublicationChange
) -> None:
    for table in (tables.published_files, tables.publications):
        connection.execute(table.delete().where(table.c.project_id == project_id))
    found = change.publication
    if found is not None:
        hashes = store_contents(connection, project_id, change.files)
        row = {name: getattr(found, name) for name in ("version", "root", "fallback")}
        row |= {"project_id": project_id, "published_at": found.published_at}
        connection.execute(tables.publications.insert().values(row))
        connection.execute(
            tables.published_files.insert(),
            [
                {"project_id": project_id, "path": path, "hash": each}
                for path, each in sorted(hashes.items())
            ],
        )
    remove_unnamed(connection, project_id)
