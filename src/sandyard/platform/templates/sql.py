"""Templates on SQLite or PostgreSQL."""

from collections.abc import Sequence
from collections.abc import Set as AbstractSet
from datetime import datetime
from functools import partial

import sqlalchemy as sa

from sandyard.kit.sql.database import Database
from sandyard.kit.sql.entities import find_entities, find_entity
from sandyard.kit.sql.transitions import EntityTable, SqlTransitions
from sandyard.platform.entities.sql import Condition, SqlListing, SqlOwnedStore
from sandyard.platform.schema.tables import templates
from sandyard.platform.templates import model
from sandyard.platform.templates.errors import TemplateNameTakenError

TEMPLATES = EntityTable(model.Template, templates)
_template = templates.c
_visibility = sa.case(
    *((_template[flag], each.value) for flag, each in model.VISIBILITY_FLAGS),
    else_=model.Visibility.PRIVATE.value,
)


class SqlTemplateStore(SqlOwnedStore[model.Template]):
    name_taken = TemplateNameTakenError
    cursor_name = "templates"

    def __init__(self, database: Database, transitions: SqlTransitions) -> None:
        super().__init__(database, transitions)
        self.listing = SqlListing(
            TEMPLATES,
            searched=(_template.name, _template.description),
            special={
                "tag": partial(_has_tag, engine=database.name),
                "visibility": lambda visibility: _visibility == visibility,
            },
        )

    def visible_to(self, account_id: str) -> Sequence[Condition]:
        return (_template.deleted_at.is_(None), model.is_visible(_template, account_id))

    async def official_names(self) -> AbstractSet[str]:
        statement = sa.select(_template.name).where(_template.is_official)
        return await self._database.read(
            lambda connection: frozenset(connection.scalars(statement))
        )

    async def warm_templates(self) -> Sequence[model.Template]:
        is_warm = (_template.deleted_at.is_(None), _template.warm_machines > 0)
        return await find_entities(self._database, TEMPLATES, *is_warm)

    async def find_any(self, template_id: str) -> model.Template | None:
        return await find_entity(self._database, TEMPLATES, _template.template_id == template_id)

    async def uncounted(
        self, until: datetime, *, limit: int, after: str
    ) -> Sequence[model.Template]:
        wanted = (_template.storage_counted_until < until, _template.template_id > after)
        order = _template.template_id
        return await find_entities(self._database, TEMPLATES, *wanted, limit=limit, order=order)


def _has_tag(tag: str, engine: str) -> Condition:
    if engine == "postgresql":
        from sqlalchemy.dialects.postgresql import JSONB

        return sa.cast(_template.tags, JSONB).contains([tag])
    each = sa.func.json_each(_template.tags).table_valued("value")
    return sa.exists(sa.select(1).select_from(each).where(each.c.value == tag))
