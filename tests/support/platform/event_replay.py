"""Checks that the Platform's events lead to the states that its tables hold."""

from collections.abc import AsyncIterator, Sequence
from typing import Any

import sqlalchemy as sa

from sandyard.kit.changes.transitions import Entity
from sandyard.kit.changes.verification import Problem, verify_history
from sandyard.kit.sql.database import Database
from sandyard.kit.sql.transitions import EntityTable
from sandyard.platform.billing.sql import BILLS
from sandyard.platform.events.entities import platform_events
from sandyard.platform.sandboxes.sql.store import SANDBOXES
from sandyard.platform.usage.sql import USAGES


async def sandbox_history(database: Database) -> tuple[int, Sequence[Problem]]:
    """How many sandboxes, usages and bills there are, and those that differ from their events."""
    subjects, problems = 0, list[Problem]()
    for kept in (SANDBOXES, USAGES, BILLS):
        report = await verify_history(
            _all(database, kept), _finder(database, kept), platform_events(database)
        )
        subjects += report.subjects
        problems += report.problems
    return subjects, problems


async def assert_history(database: Database) -> int:
    subjects, problems = await sandbox_history(database)
    assert problems == [], problems
    return subjects


async def _all(database: Database, kept: EntityTable[Any]) -> AsyncIterator[Sequence[Entity]]:
    statement = sa.select(kept.table)
    rows = await database.read(lambda connection: connection.execute(statement).all())
    for start in range(0, len(rows), 500):
        yield [kept.entity_of(row) for row in rows[start : start + 500]]


def _finder(database: Database, kept: EntityTable[Any]) -> Any:
    async def find(subject: str) -> Entity | None:
        statement = sa.select(kept.table).where(kept.subject == subject)
        row = await database.read(lambda connection: connection.execute(statement).first())
        return None if row is None else kept.entity_of(row)

    return find


async def all_of(database: Database, kept: EntityTable[Any]) -> Sequence[Any]:
    """Every entity of the table."""
    return [each async for page in _all(database, kept) for each in page]
