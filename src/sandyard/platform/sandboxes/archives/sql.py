"""The archives of templates on SQLite or PostgreSQL, for counting their storage."""

from collections.abc import Sequence
from datetime import datetime
from typing import Any

import sqlalchemy as sa

from sandyard.kit.sql.transitions import SqlEntityStore
from sandyard.platform.schema.tables import templates
from sandyard.platform.templates.model import Template
from sandyard.platform.templates.sql import TEMPLATES

_column = templates.c


class SqlArchiveStore(SqlEntityStore):
    async def find(self, template_id: str) -> Template | None:
        found = await self._all(sa.select(templates).where(_column.template_id == template_id))
        return found[0] if found else None

    async def uncounted(self, until: datetime, *, limit: int, after: str) -> Sequence[Template]:
        return await self._all(
            sa.select(templates)
            .where(_column.storage_counted_until < until, _column.template_id > after)
            .order_by(_column.template_id)
            .limit(limit)
        )

    async def _all(self, statement: sa.Select[Any]) -> Sequence[Template]:
        rows = await self._database.read(lambda connection: connection.execute(statement).all())
        return [TEMPLATES.entity_of(row) for row in rows]
