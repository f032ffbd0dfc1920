"""Templates on SQLite or PostgreSQL."""

from collections.abc import Sequence
from collections.abc import Set as AbstractSet
from functools import partial

import sqlalchemy as sa

from sandyard.kit.paging import Page
from sandyard.kit.sql.database import Database
from sandyard.kit.sql.entities import find_entity
from sandyard.kit.sql.transitions import EntityTable, SqlEntityStore, SqlTransitions
from sandyard.platform.listings.model import Listing
from sandyard.platform.listings.sql import SqlListing
from sandyard.platform.quotas.model import CountQuota
from sandyard.platform.schema.tables import templates
from sandyard.platform.templates.errors import TemplateNameTakenError
from sandyard.platform.templates.model import (
    VISIBILITY_FLAGS,
    Template,
    TemplateFilter,
    Visibility,
    is_visible,
)

TEMPLATES = EntityTable(Template, templates)
_template = templates.c
_visibility = sa.case(
    *((_template[flag], each.value) for flag, each in VISIBILITY_FLAGS),
    else_=Visibility.PRIVATE.value,
)


class SqlTemplateStore(SqlEntityStore):
    name_taken = TemplateNameTakenError

    def __init__(self, database: Database, transitions: SqlTransitions) -> None:
        super().__init__(database, transitions)
        self._listing = SqlListing(
            TEMPLATES,
            searched=(_template.name, _template.description),
            special={
                "tag": partial(_has_tag, engine=database.name),
                "visibility": lambda visibility: _visibility == visibility,
            },
        )

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
        self, account_id: str, listing: Listing[TemplateFilter]
    ) -> Page[Template]:
        name = f"templates {account_id}"
        return await self._listing.page(self._database, listing, *_seen_by(account_id), name=name)


def _seen_by(account_id: str) -> tuple[sa.ColumnElement[bool], ...]:
    return (_template.deleted_at.is_(None), is_visible(_template, account_id))


def _has_tag(tag: str, engine: str) -> sa.ColumnElement[bool]:
    if engine == "postgresql":
        from sqlalchemy.dialects.postgresql import JSONB

        return sa.cast(_template.tags, JSONB).contains([tag])
    each = sa.func.json_each(_template.tags).table_valued("value")
    return sa.exists(sa.select(1).select_from(each).where(each.c.value == tag))
