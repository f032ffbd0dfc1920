"""Variables on SQLite or PostgreSQL."""

from collections.abc import Sequence
from typing import Any

import sqlalchemy as sa
from sqlalchemy import exc

from sandyard.kit.changes.events import Event
from sandyard.kit.changes.transitions import Transition
from sandyard.kit.sql.database import Database
from sandyard.kit.sql.entities import find_entity
from sandyard.kit.sql.transitions import EntityTable, SqlTransitions
from sandyard.platform.quotas.model import CountQuota
from sandyard.platform.schema.tables import variables
from sandyard.platform.variables.model import Variable

VARIABLES = EntityTable(Variable, variables)
_variable = variables.c
_OF_HOLDERS = (
    sa.select(*VARIABLES.columns)
    .where(_variable.holder_id.in_(sa.bindparam("holder_ids", expanding=True)))
    .order_by(_variable.name)
)
"""Built once: every command runs it, and building it takes longer."""


class SqlVariableStore:
    def __init__(self, database: Database, transitions: SqlTransitions) -> None:
        self._database = database
        self._transitions = transitions

    async def of_holders(self, holder_ids: Sequence[str]) -> Sequence[Variable]:
        values = {"holder_ids": list(holder_ids)}
        rows = await self._database.read(lambda c: c.execute(_OF_HOLDERS, values).all())
        return [VARIABLES.entity_of(row) for row in rows]

    async def find_variable(self, holder_id: str, name: str) -> Variable | None:
        this = (_variable.holder_id == holder_id, _variable.name == name)
        return await find_entity(self._database, VARIABLES, *this)

    async def read_count_quota(self, about: CountQuota) -> CountQuota:
        return await self._transitions.read_fact(about)

    async def apply(
        self, *transitions: Transition[Any], extra_events: Sequence[Event] = ()
    ) -> bool:
        try:
            return await self._transitions.apply(*transitions, extra_events=extra_events)
        except exc.IntegrityError:
            return False
