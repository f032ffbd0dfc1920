"""Variables on SQLite or PostgreSQL."""

from collections.abc import Sequence
from typing import Any

from sqlalchemy import exc

from sandyard.kit.events import Event
from sandyard.kit.sql import Database
from sandyard.kit.sql_entities import find_entities, find_entity
from sandyard.kit.sql_transitions import EntityTable, SqlTransitions
from sandyard.kit.transitions import Transition
from sandyard.platform.count_quotas import CountQuota
from sandyard.platform.environment.model import Variable
from sandyard.platform.tables import variables

VARIABLES = EntityTable(Variable, variables)
_variable = variables.c
_MOST = 100_000


class SqlVariableStore:
    def __init__(self, database: Database, transitions: SqlTransitions) -> None:
        self._database = database
        self._transitions = transitions

    async def of_holders(self, holder_ids: Sequence[str]) -> Sequence[Variable]:
        held = _variable.holder_id.in_(holder_ids)
        return await find_entities(
            self._database, VARIABLES, held, limit=_MOST, order=_variable.name
        )

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
