"""A check that the Platform's events lead to what its tables hold, while it is in use."""

from collections.abc import Callable, Sequence
from typing import Any

from sandyard.kit.events import EventLog
from sandyard.kit.sql import Database
from sandyard.kit.sql_entities import all_entities, find_entity
from sandyard.kit.sql_transitions import EntityTable
from sandyard.kit.transitions import Entity
from sandyard.kit.verification import HistoryReport, verify_history
from sandyard.platform.entities import ENTITY_TABLES, platform_events


async def verify_platform(
    database: Database, *, progress: Callable[[int], None] = lambda _: None
) -> HistoryReport:
    """Fold the events of every entity of the Platform and compare."""
    return await verify_tables(
        database, ENTITY_TABLES, platform_events(database), progress=progress
    )


async def verify_tables(
    database: Database,
    tables: Sequence[EntityTable[Any]],
    log: EventLog,
    *,
    progress: Callable[[int], None],
) -> HistoryReport:
    total = HistoryReport()
    for kept in tables:
        found = await _verify_table(database, kept, log)
        total.subjects += found.subjects
        total.problems += found.problems
        progress(total.subjects)
    return total


async def _verify_table(database: Database, kept: EntityTable[Any], log: EventLog) -> HistoryReport:
    async def find(subject: str) -> Entity | None:
        found: Entity | None = await find_entity(database, kept, kept.subject == subject)
        return found

    return await verify_history(all_entities(database, kept), find, log)
