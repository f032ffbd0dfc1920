"""Templates on SQLite or PostgreSQL."""

from collections.abc import Sequence
from collections.abc import Set as AbstractSet

import sqlalchemy as sa

from sandyard.kit.paging import Page
from sandyard.kit.sql.entities import contains, find_entity, page_of_entities
from sandyard.kit.sql.transitions import EntityTable, SqlEntityStore
from sandyard.platform.quotas.model import CountQuota
from sandyard.platform.schema.tables import templates
from sandyard.platform.templates.errors import TemplateNameTakenError
from sandyard.platform.templates.model import (
    VISIBILITY_FLAGS,
    Template,
    TemplateFilter,
    TemplateSort,
    Visibility,
    is_visible,
)

TEMPLATES = EntityTable(Template, templates)
_template = templates.c
_visibility = sa.case(
    *((_template[flag], each.value) for flag, each in VISIBILITY_FLAGS),
    else_=Visibility.PRIVATE.value,
)
_ORDER = {
    TemplateSort.NEWEST: (_template.created_at, True),
    TemplateSort.OLDEST: (_template.created_at, False),
    TemplateSort.NAME: (_template.name, False),
    TemplateSort.NAME_REVERSED: (_template.name, True),
}


class SqlTemplateStore(SqlEntityStore):
    name_taken = TemplateNameTakenError

    async def read_count_quota(self, about: CountQuota) -> CountQuota:
        return await self._transitions.read_fact(about)

    async def official_names(self) -> AbstractSet[str]:
        statement = sa.select(_template.name).where(_template.is_official)
        return await self._database.read(
            lambda connection: frozenset(connection.scalars(statement))
        )

    async def find_template(self, account_id: str, template_id: str) -> Template | None:
        this = _template.template_id == template_id
        return await find_entity(self._database, TEMPLATES, *_seen_by(account_id), this)

    async def warm_templates(self) -> Sequence[Template]:
        statement = sa.select(templates).where(
            _template.deleted_at.is_(None), _template.warm_machines > 0
        )
        rows = await self._database.read(lambda connection: connection.execute(statement).all())
        return [TEMPLATES.entity_of(row) for row in rows]

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
        return await page_of_entities(
            self._database,
            TEMPLATES,
            *_seen_by(account_id),
            *_matching(only, self._database.name),
            order=(column, _template.id),
            descending=descending,
            listing=f"templates {account_id} {only} {sort}",
            limit=limit,
            cursor=cursor,
        )


def _seen_by(account_id: str) -> tuple[sa.ColumnElement[bool], ...]:
    return (_template.deleted_at.is_(None), is_visible(_template, account_id))


def _matching(only: TemplateFilter, engine: str) -> list[sa.ColumnElement[bool]]:
    conditions: list[sa.ColumnElement[bool]] = []
    if only.search is not None:
        conditions.append(contains(only.search, _template.name, _template.description))
    if only.category is not None:
        conditions.append(_template.category == only.category)
    if only.language is not None:
        conditions.append(_template.language == only.language)
    if only.tag is not None:
        conditions.append(_has_tag(only.tag, engine))
    if only.visibility is not None:
        conditions.append(_visibility == only.visibility)
    return conditions


def _has_tag(tag: str, engine: str) -> sa.ColumnElement[bool]:
    if engine == "postgresql":
        from sqlalchemy.dialects.postgresql import JSONB

        return sa.cast(_template.tags, JSONB).contains([tag])
    each = sa.func.json_each(_template.tags).table_valued("value")
    return sa.exists(sa.select(1).select_from(each).where(each.c.value == tag))
