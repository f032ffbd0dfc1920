"""Templates on SQLite or PostgreSQL."""

from collections.abc import Sequence
from dataclasses import asdict, fields
from datetime import datetime
from typing import Any

import sqlalchemy as sa
from sqlalchemy import exc
from sqlalchemy.dialects.postgresql import JSONB

from sandyard.kit.paging import Page
from sandyard.kit.sql import Database, T, Work, insert_or_ignore
from sandyard.kit.sql_paging import page_of
from sandyard.platform.principal import Principal
from sandyard.platform.tables import templates
from sandyard.platform.templates.errors import TemplateNameTakenError, TemplateNotFoundError
from sandyard.platform.templates.model import (
    Template,
    TemplateChanges,
    TemplateFilter,
    TemplateSort,
    Visibility,
)

_template = templates.c
_TEMPLATE = tuple(_template[field.name] for field in fields(Template))
_ORDER = {
    TemplateSort.NEWEST: (_template.created_at, True),
    TemplateSort.OLDEST: (_template.created_at, False),
    TemplateSort.NAME: (_template.name, False),
    TemplateSort.NAME_REVERSED: (_template.name, True),
}


def get_visible_template(
    connection: sa.Connection, account_id: str, template_id: str, *, lock: bool = False
) -> Template:
    """The template, if the account may use it; TemplateNotFoundError. With `lock`, nobody changes
    or deletes it before this transaction ends, but many may look at it so at once."""
    statement = sa.select(*_TEMPLATE).where(
        *_seen_by(account_id), _template.template_id == template_id
    )
    row = connection.execute(statement.with_for_update(read=True) if lock else statement).first()
    if row is None:
        raise TemplateNotFoundError
    return _template_of(row)


class SqlTemplateStore:
    def __init__(self, database: Database) -> None:
        self._database = database

    async def add_template(self, template: Template) -> None:
        statement = templates.insert().values(asdict(template))
        await self._write(lambda connection: connection.execute(statement))

    async def add_missing_official(self, templates_: Sequence[Template]) -> None:
        there = sa.select(_template.name).where(_template.is_official)
        names = await self._database.read(lambda c: set(c.scalars(there)))
        missing = [asdict(each) for each in templates_ if each.name not in names]
        if missing:
            await self._database.write(
                lambda c: c.execute(insert_or_ignore(c, templates).values(missing))
            )

    async def find_template(self, account_id: str, template_id: str) -> Template | None:
        try:
            return await self._database.read(
                lambda connection: get_visible_template(connection, account_id, template_id)
            )
        except TemplateNotFoundError:
            return None

    async def page_of_templates(
        self,
        account_id: str,
        only: TemplateFilter,
        *,
        sort: TemplateSort,
        limit: int,
        cursor: str | None,
    ) -> Page[Template]:
        column, descending = _ORDER[sort]
        matching = _matching(only, self._database.name)
        rows, next_cursor = await page_of(
            self._database,
            sa.select(*_TEMPLATE, _template.id).where(*_seen_by(account_id), *matching),
            (column, _template.id),
            listing=f"templates {account_id} {only} {sort}",
            limit=limit,
            cursor=cursor,
            descending=descending,
        )
        return Page([_template_of(row) for row in rows], next_cursor)

    async def update_template(
        self, principal: Principal, template_id: str, changes: TemplateChanges, *, now: datetime
    ) -> Template:
        def work(connection: sa.Connection) -> Template:
            template = _lock_own(connection, principal, template_id)
            if not changes:
                return template
            return _update(connection, template_id, **changes, updated_at=now)

        return await self._write(work)

    async def delete_template(
        self, principal: Principal, template_id: str, *, now: datetime
    ) -> None:
        def work(connection: sa.Connection) -> None:
            _lock_own(connection, principal, template_id)
            _update(connection, template_id, deleted_at=now, updated_at=now)

        await self._write(work)

    async def _write(self, work: Work[T]) -> T:
        try:
            return await self._database.write(work)
        except exc.IntegrityError as error:
            raise TemplateNameTakenError from error


def _lock_own(connection: sa.Connection, principal: Principal, template_id: str) -> Template:
    statement = sa.select(*_TEMPLATE).where(
        *_seen_by(principal.account_id), _template.template_id == template_id
    )
    row = connection.execute(statement.with_for_update()).first()
    if row is None:
        raise TemplateNotFoundError
    template = _template_of(row)
    template.require_changeable_by(principal)
    return template


def _update(connection: sa.Connection, template_id: str, **values: Any) -> Template:
    statement = templates.update().where(_template.template_id == template_id).values(values)
    return _template_of(connection.execute(statement.returning(*_TEMPLATE)).one())


def _seen_by(account_id: str) -> tuple[sa.ColumnElement[bool], ...]:
    seen = sa.or_(
        _template.is_official, _template.is_public, _template.owner_account_id == account_id
    )
    return (_template.deleted_at.is_(None), seen)


def _matching(only: TemplateFilter, engine: str) -> list[sa.ColumnElement[bool]]:
    conditions: list[sa.ColumnElement[bool]] = []
    if only.search is not None:
        searched = (_template.name, _template.description)
        conditions.append(
            sa.or_(*(column.icontains(only.search, autoescape=True) for column in searched))
        )
    if only.category is not None:
        conditions.append(_template.category == only.category)
    if only.language is not None:
        conditions.append(_template.language == only.language)
    if only.tag is not None:
        conditions.append(_has_tag(only.tag, engine))
    match only.visibility:
        case Visibility.OFFICIAL:
            conditions.append(_template.is_official)
        case Visibility.PUBLIC:
            conditions += [_template.is_public, sa.not_(_template.is_official)]
        case Visibility.PRIVATE:
            conditions += [sa.not_(_template.is_public), sa.not_(_template.is_official)]
    return conditions


def _has_tag(tag: str, engine: str) -> sa.ColumnElement[bool]:
    if engine == "postgresql":
        return sa.cast(_template.tags, JSONB).contains([tag])
    each = sa.func.json_each(_template.tags).table_valued("value")
    return sa.exists(sa.select(1).select_from(each).where(each.c.value == tag))


def _template_of(row: Any) -> Template:
    return Template(**{field.name: getattr(row, field.name) for field in fields(Template)})
