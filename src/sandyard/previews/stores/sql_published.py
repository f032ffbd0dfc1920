"""Published versions on SQLite or PostgreSQL."""

from collections.abc import Collection, Sequence
from dataclasses import asdict

import sqlalchemy as sa

from sandyard.kit.sql.database import upsert
from sandyard.kit.sql.transitions import StaleTransitionError
from sandyard.previews.files import ProjectFile, Publication, PublicationChange, PublishAttempt
from sandyard.previews.stores import tables
from sandyard.previews.stores.sql_files import SqlFiles, remove_unnamed, store_contents

_publication = tables.publications.c
_file = tables.published_files.c
_content = tables.past_contents.c
_domain = tables.published_domains.c
_attempt = tables.publish_attempts.c


class SqlPublished(SqlFiles):
    async def publication(self, project_id: str) -> Publication | None:
        columns = [each for each in _publication if each.name != "project_id"]
        statement = sa.select(*columns).where(_publication.project_id == project_id)
        named = sa.select(_domain.domain).where(_domain.project_id == project_id)

        def work(connection: sa.Connection) -> Publication | None:
            row = connection.execute(statement).first()
            names = connection.execute(named.order_by(_domain.domain)).scalars().all()
            return None if row is None else Publication(**row._mapping, domains=names)  # noqa: SLF001 - public

        return await self._database.read(work)

    async def publish_attempt(self, project_id: str) -> PublishAttempt | None:
        columns = [each for each in _attempt if each.name != "project_id"]
        statement = sa.select(*columns).where(_attempt.project_id == project_id)
        row = await self._database.read(lambda connection: connection.execute(statement).first())
        return None if row is None else PublishAttempt(**row._mapping)  # noqa: SLF001 - public

    async def write_publish_attempt(
        self, project_id: str, attempt: PublishAttempt | None, *, instead_of: str | None
    ) -> bool:
        removal = tables.publish_attempts.delete().where(
            _attempt.project_id == project_id, _attempt.id == (instead_of or "")
        )
        row = None if attempt is None else asdict(attempt) | {"project_id": project_id}
        if row is not None:
            row["last_lines"] = list(row["last_lines"])

        def work(connection: sa.Connection) -> bool:
            if instead_of is not None and not connection.execute(removal).rowcount:
                return False
            if row is not None:
                statement = upsert(connection, tables.publish_attempts).on_conflict_do_nothing()
                return bool(connection.execute(statement, row).rowcount)
            return True

        return await self._database.write(work)

    async def project_of_domain(self, domain: str) -> str | None:
        statement = sa.select(_domain.project_id).where(_domain.domain == domain)
        return await self._database.read(lambda connection: connection.execute(statement).scalar())

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
    """Raises StaleTransitionError if the attempt that leads to it is over."""
    found, files, attempt = change.publication, change.files, change.attempt
    if found is not None and attempt is not None:
        is_current = (_attempt.id == attempt.id) & _attempt.failure.is_(None)
        removal = tables.publish_attempts.delete().where(
            _attempt.project_id == project_id, is_current, _attempt.until > found.published_at
        )
        if not connection.execute(removal).rowcount:
            raise StaleTransitionError
    replaced = [tables.publications, tables.published_domains]
    for table in [*replaced, *([] if files is None else [tables.published_files])]:
        connection.execute(table.delete().where(table.c.project_id == project_id))
    if found is not None:
        row = asdict(found) | {"project_id": project_id}
        named = [{"domain": each, "project_id": project_id} for each in row.pop("domains")]
        connection.execute(tables.publications.insert().values(row))
        if named:
            connection.execute(tables.published_domains.insert(), named)
    if files is None:
        return
    hashes = store_contents(connection, project_id, files) if files else {}
    written = [
        {"project_id": project_id, "path": path, "hash": each}
        for path, each in sorted(hashes.items())
    ]
    if written:
        connection.execute(tables.published_files.insert(), written)
    remove_unnamed(connection, project_id)
