"""How many things of a kind accounts have, on SQLite or PostgreSQL."""

from collections.abc import Mapping, Sequence

import sqlalchemy as sa

from sandyard.kit.sql import Database
from sandyard.kit.sql_transitions import FactReader
from sandyard.platform.budgets import Budget, Noun
from sandyard.platform.quotas.model import ResourceQuota
from sandyard.platform.sandboxes.model import Status
from sandyard.platform.tables import projects, sandboxes, templates

_COUNTED = {
    Noun.PROJECTS: (projects, projects.c.deleted_at.is_(None)),
    Noun.SANDBOXES: (sandboxes, sandboxes.c.status != Status.RECYCLED),
    Noun.TEMPLATES: (templates, templates.c.deleted_at.is_(None)),
}


class BudgetUse:
    """What accounts have of that which they may have so many of, running or not."""

    def __init__(self, database: Database, limits: Mapping[Noun, int]) -> None:
        self._database = database
        self._limits = limits

    async def of_account(self, account_id: str) -> Sequence[ResourceQuota]:
        counts = await self._database.read(
            lambda connection: [_count(connection, noun, account_id) for noun in self._limits]
        )
        return [
            ResourceQuota(f"{noun}_kept", count, limit)
            for (noun, limit), count in zip(self._limits.items(), counts, strict=True)
        ]


def _read_budget(connection: sa.Connection, about: Budget) -> Budget:
    return about.with_count(_count(connection, about.noun, about.account_id))


def _count(connection: sa.Connection, noun: Noun, account_id: str) -> int:
    table, is_there = _COUNTED[noun]
    statement = sa.select(sa.func.count()).where(table.c.owner_account_id == account_id, is_there)
    count: int = connection.execute(statement).scalar_one()
    return count


BUDGETS = FactReader(lambda fact: f"budget {fact.noun} {fact.account_id}", _read_budget)
"""Whoever makes one of them does it under this lock."""
