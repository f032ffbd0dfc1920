"""Projects on SQLite or PostgreSQL."""

from collections.abc import Awaitable, Callable, Collection, Sequence
from collections.abc import Set as AbstractSet
from datetime import datetime
from typing import TypeVar

import sqlalchemy as sa

from sandyard.kit.sql.database import Database
from sandyard.kit.sql.entities import EntityLookup, find_entity
from sandyard.kit.sql.transitions import EntityTable, SqlTransitions, lock_name
from sandyard.platform.entities.sql import SqlListing, SqlOwnedStore
from sandyard.platform.projects.errors import ProjectNameTakenError
from sandyard.platform.projects.model import Project
from sandyard.platform.schema.tables import projects

T = TypeVar("T")

PROJECTS = EntityTable(Project, projects)
_project = projects.c
_UNCLEARED = sa.and_(_project.deleted_at.is_not(None), _project.cleared_at.is_(None))


def project_lock(project_id: str) -> str:
    """The lock that excludes deleting a project and adding to it at the same time."""
    return f"project {project_id}"


class SqlProjectStore(SqlOwnedStore[Project]):
    name_taken = ProjectNameTakenError
    cursor_name = "projects"
    listing = SqlListing(PROJECTS, searched=(_project.name, _project.description))

    def __init__(self, database: Database, transitions: SqlTransitions) -> None:
        super().__init__(database, transitions)
        self._lookup = EntityLookup(database, PROJECTS, _project.deleted_at.is_(None))

    async def find(self, account_id: str, entity_id: str) -> Project | None:
        project = await self._lookup.find(entity_id)
        return project if project and project.owner_account_id == account_id else None

    async def hold_project(
        self, account_id: str, project_id: str, work: Callable[[Project | None], Awaitable[T]]
    ) -> T:
        this = _project.project_id == project_id
        statement = sa.select(*PROJECTS.columns).where(*self.visible_to(account_id), this)

        def lock(connection: sa.Connection) -> Project | None:
            lock_name(connection, project_lock(project_id))
            row = connection.execute(statement).first()
            return None if row is None else PROJECTS.entity_of(row)

        return await self._database.hold(lock, work)

    async def find_default(self, account_id: str) -> Project | None:
        this = (*self.visible_to(account_id), _project.is_default)
        return await find_entity(self._database, PROJECTS, *this)

    async def deleted_projects(self, project_ids: Collection[str]) -> AbstractSet[str]:
        statement = sa.select(_project.project_id).where(
            _project.project_id.in_(project_ids), _project.deleted_at.is_not(None)
        )
        rows = await self._database.read(lambda connection: connection.execute(statement).all())
        return {row.project_id for row in rows}

    async def uncleared_projects(self, *, after: str, limit: int) -> Sequence[str]:
        statement = (
            sa.select(_project.project_id)
            .where(_UNCLEARED, _project.project_id > after)
            .order_by(_project.project_id)
            .limit(limit)
        )
        return await self._database.read(lambda c: c.execute(statement).scalars().all())

    async def clear_projects(self, project_ids: Collection[str], *, at: datetime) -> None:
        cleared = (
            projects.update()
            .where(_UNCLEARED, _project.project_id.in_(project_ids))
            .values(cleared_at=at)
        )
        await self._database.write(lambda connection: connection.execute(cleared))
