"""Variables on SQLite or PostgreSQL."""

from collections.abc import Sequence
from typing import Any

import sqlalchemy as sa
from sqlalchemy import exc

from sandyard.kit.changes.events import Event
from sandyard.kit.changes.transitions import Transition
from sandyard.kit.paging import Page
from sandyard.kit.sql.entities import find_entity
from sandyard.kit.sql.transitions import EntityTable, SqlEntityStore
from sandyard.platform.entities.model import Listing
from sandyard.platform.entities.sql import SqlListing
from sandyard.platform.schema.tables import variables
from sandyard.platform.variables.model import Variable, VariableFilter

VARIABLES = EntityTable(Variable, variables)
_variable = variables.c
_LISTING = SqlListing(VARIABLES)
_OF_HOLDERS = (
    sa.select(*VARIABLES.columns)
    .where(_variable.holder_id.in_(sa.bindparam("holder_ids", expanding=True)))
    .order_by(_variable.name)
)
"""Built once: every command runs it, and building it takes longer."""


class SqlVariableStore(SqlEntityStore):
    async def of_holders(self, holder_ids: Sequence[str]) -> Sequence[Variable]:
        values = {"holder_ids": list(holder_ids)}
        rows = await self._database.read(lambda c: c.execute(_OF_HOLDERS, values).all())
        return [VARIABLES.entity_of(row) for row in rows]

    async def page(self, listing: Listing[VariableFilter]) -> Page[Variable]:
        return await _LISTING.page(self._database, listing, name="variables")

    async def find_variable(self, holder_id: str, name: str) -> Variable | None:
        this = (_variable.holder_id == holder_id, _variable.name == name)
        return await find_entity(self._database, VARIABLES, *this)

    async def apply(
        self, *transitions: Transition[Any], extra_events: Sequence[Event] = ()
    ) -> bool:
        try:
            return await super().apply(*transitions, extra_events=extra_events)
        except exc.IntegrityError:
            return False
