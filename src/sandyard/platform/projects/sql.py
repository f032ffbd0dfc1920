"""Projects on SQLite or PostgreSQL.

What changes a project locks its row first, so that what was decided about it still holds when it
is written. Other nouns lock the row too before they put something into one.
"""

from dataclasses import asdict, fields
from datetime import datetime
from typing import Any

import sqlalchemy as sa
from sqlalchemy import exc

from sandyard.kit.paging import Page
from sandyard.kit.sql import Database, T, Work
from sandyard.kit.sql_paging import page_of
from sandyard.platform.projects.errors import (
    ProjectInUseError,
    ProjectNameTakenError,
    ProjectNotFoundError,
)
from sandyard.platform.projects.model import (
    Project,
    ProjectChanges,
    ProjectFilter,
    ProjectSort,
    ProjectStatus,
)
from sandyard.platform.tables import projects, sandboxes, users

_project = projects.c
_PROJECT = tuple(_project[field.name] for field in fields(Project))
_ORDER = {
    ProjectSort.NEWEST: (_project.created_at, True),
    ProjectSort.OLDEST: (_project.created_at, False),
    ProjectSort.NAME: (_project.name, False),
    ProjectSort.NAME_REVERSED: (_project.name, True),
    ProjectSort.CHANGED: (_project.updated_at, True),
}


def insert_project(connection: sa.Connection, project: Project) -> None:
    connection.execute(projects.insert().values(asdict(project)))


def lock_project(connection: sa.Connection, account_id: str, project_id: str) -> Project:
    """The account's project, which nobody changes before this transaction ends;
    ProjectNotFoundError. Whoever writes into it calls `require_writable` on it."""
    return _locked(connection, *_of(account_id), _project.project_id == project_id)


def lock_default_project(connection: sa.Connection, account_id: str) -> Project:
    """The account's default project, locked in the same way."""
    default = (*_of(account_id), _project.is_default)
    try:
        return _locked(connection, *default)
    except ProjectNotFoundError:  # it was made another's part while we waited for its lock
        return _locked(connection, *default)


class SqlProjectStore:
    def __init__(self, database: Database) -> None:
        self._database = database

    async def add_project(self, project: Project) -> None:
        await self._write(lambda connection: insert_project(connection, project))

    async def find_project(self, account_id: str, project_id: str) -> Project | None:
        statement = sa.select(*_PROJECT).where(*_of(account_id), _project.project_id == project_id)
        row = await self._database.read(lambda connection: connection.execute(statement).first())
        return None if row is None else _project_of(row)

    async def page_of_projects(
        self,
        account_id: str,
        only: ProjectFilter,
        *,
        sort: ProjectSort,
        limit: int,
        cursor: str | None,
    ) -> Page[Project]:
        column, descending = _ORDER[sort]
        rows, next_cursor = await page_of(
            self._database,
            sa.select(*_PROJECT, _project.id).where(*_of(account_id), *_matching(only)),
            (column, _project.id),
            listing=f"projects {account_id} {only} {sort}",
            limit=limit,
            cursor=cursor,
            descending=descending,
        )
        return Page([_project_of(row) for row in rows], next_cursor)

    async def update_project(
        self, account_id: str, project_id: str, changes: ProjectChanges, *, now: datetime
    ) -> Project:
        def work(connection: sa.Connection) -> Project:
            project = lock_project(connection, account_id, project_id)
            project.require_writable()
            if not changes:
                return project
            return _update(connection, project_id, **changes, updated_at=now)

        return await self._write(work)

    async def set_status(
        self, account_id: str, project_id: str, status: ProjectStatus, *, now: datetime
    ) -> Project:
        def work(connection: sa.Connection) -> Project:
            project = lock_project(connection, account_id, project_id)
            if status is ProjectStatus.ARCHIVED:
                project.require_dispensable()
            if project.status is status:
                return project
            return _update(connection, project_id, status=status, updated_at=now)

        return await self._write(work)

    async def make_default(self, account_id: str, project_id: str, *, now: datetime) -> Project:
        # Two that change the default of one account take turns at the account's row.
        turn = sa.select(users.c.id).where(users.c.account_id == account_id).with_for_update()
        old = projects.update().where(*_of(account_id), _project.is_default)

        def work(connection: sa.Connection) -> Project:
            connection.execute(turn)
            project = lock_project(connection, account_id, project_id)
            project.require_writable()
            if project.is_default:
                return project
            connection.execute(old.values(is_default=False, updated_at=now))
            return _update(connection, project_id, is_default=True, updated_at=now)

        return await self._write(work)

    async def delete_project(self, account_id: str, project_id: str, *, now: datetime) -> None:
        in_use = sa.select(sandboxes.c.id).where(
            sandboxes.c.project_id == project_id, sandboxes.c.status != "recycled"
        )

        def work(connection: sa.Connection) -> None:
            lock_project(connection, account_id, project_id).require_dispensable()
            if connection.execute(in_use.limit(1)).first() is not None:
                raise ProjectInUseError
            _update(connection, project_id, deleted_at=now, updated_at=now)

        await self._write(work)

    async def _write(self, work: Work[T]) -> T:
        try:
            return await self._database.write(work)
        except exc.IntegrityError as error:
            raise ProjectNameTakenError from error


def _locked(connection: sa.Connection, *conditions: sa.ColumnElement[bool]) -> Project:
    row = connection.execute(sa.select(*_PROJECT).where(*conditions).with_for_update()).first()
    if row is None:
        raise ProjectNotFoundError
    return _project_of(row)


def _update(connection: sa.Connection, project_id: str, **values: Any) -> Project:
    statement = projects.update().where(_project.project_id == project_id).values(values)
    return _project_of(connection.execute(statement.returning(*_PROJECT)).one())


def _of(account_id: str) -> tuple[sa.ColumnElement[bool], ...]:
    return (_project.owner_account_id == account_id, _project.deleted_at.is_(None))


def _matching(only: ProjectFilter) -> list[sa.ColumnElement[bool]]:
    conditions: list[sa.ColumnElement[bool]] = []
    if only.search is not None:
        searched = (_project.name, _project.description)
        conditions.append(
            sa.or_(*(column.icontains(only.search, autoescape=True) for column in searched))
        )
    if only.status is not None:
        conditions.append(_project.status == only.status)
    if only.is_default is not None:
        conditions.append(_project.is_default.is_(only.is_default))
    return conditions


def _project_of(row: Any) -> Project:
    values = {field.name: getattr(row, field.name) for field in fields(Project)}
    return Project(**(values | {"status": ProjectStatus(row.status)}))
