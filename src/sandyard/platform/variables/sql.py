"""Variables on SQLite or PostgreSQL."""

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

import sqlalchemy as sa
from sqlalchemy import exc

from sandyard.kit.changes.events import Event
from sandyard.kit.changes.transitions import Transition
from sandyard.kit.paging import Page
from sandyard.kit.sql.database import insert_or_update
from sandyard.kit.sql.entities import find_entity
from sandyard.kit.sql.transitions import EntityTable, SqlEntityStore
from sandyard.platform.entities.model import Listing
from sandyard.platform.entities.sql import SqlListing
from sandyard.platform.schema.tables import secret_uses, variables
from sandyard.platform.variables.model import Variable, VariableFilter
from sandyard.runtime.network_model import SecretUse

VARIABLES = EntityTable(Variable, variables)
_variable, _use = variables.c, secret_uses.c
_BATCH = 500
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

    async def find_by_id(self, variable_id: str) -> Variable | None:
        return await find_entity(self._database, VARIABLES, _variable.variable_id == variable_id)

    async def bound_of(self, holder_ids: Sequence[str]) -> Sequence[Variable]:
        found: list[Variable] = []
        statement = _OF_HOLDERS.where(_variable.binding.is_not(None))
        for first in range(0, len(holder_ids), _BATCH):
            values = {"holder_ids": list(holder_ids[first : first + _BATCH])}
            rows = await self._database.read(partial(_all, statement, values))
            found += [VARIABLES.entity_of(row) for row in rows]
        return found

    async def uses(
        self, variable_ids: Sequence[str], *, besides: str | None = None
    ) -> Mapping[str, SecretUse]:
        sums = sa.func.sum(_use.requests), sa.func.sum(_use.bytes)
        where = _use.variable_id.in_(variable_ids), _use.run != (besides or "")
        statement = sa.select(_use.variable_id, *sums).where(*where).group_by(_use.variable_id)
        rows = await self._database.read(partial(_all, statement, {}))
        return {row[0]: SecretUse(row[0], int(row[1]), int(row[2])) for row in rows}

    async def note_uses(self, run: str, uses: Sequence[SecretUse]) -> None:
        def write(connection: sa.Connection) -> None:
            ids = [each.id for each in uses]
            known = sa.select(_variable.variable_id).where(_variable.variable_id.in_(ids))
            existing = set(connection.execute(known).scalars())
            for use in uses:
                if use.id in existing:
                    row: dict[str, Any] = {"variable_id": use.id, "run": run}
                    row |= {"requests": use.requests, "bytes": use.bytes}
                    insert_or_update(connection, secret_uses, row, key=("variable_id", "run"))

        await self._database.write(write)

    async def apply(
        self, *transitions: Transition[Any], extra_events: Sequence[Event] = ()
    ) -> bool:
        try:
            return await super().apply(*transitions, extra_events=extra_events)
        except exc.IntegrityError:
            return False


def _all(statement: Any, values: Mapping[str, Any], connection: sa.Connection) -> Sequence[Any]:
    return connection.execute(statement, values).all()
