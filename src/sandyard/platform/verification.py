"""A check that the Platform's events lead to what its tables hold, while it is in use."""

from collections.abc import Callable
from typing import Any

from sandyard.kit.sql import Database
from sandyard.kit.sql_entities import all_entities, find_entity
from sandyard.kit.sql_transitions import EntityTable
from sandyard.kit.transitions import Entity
from sandyard.kit.verification import Find, HistoryReport, verify_gone, verify_history
from sandyard.platform.entities import ENTITY_TABLES, platform_events


async def verify_platform(
    database: Database, *, progress: Callable[[int], None] = lambda _: None
) -> HistoryReport:
    """Compare every entity of the Platform with its events."""
    log, report = platform_events(database), HistoryReport()
    finds = [_finder(database, kept) for kept in ENTITY_TABLES]
    for kept, find in zip(ENTITY_TABLES, finds, strict=True):
        report.add(await verify_history(all_entities(database, kept), find, log))
        progress(report.subjects)

    async def find_any(subject: str) -> Entity | None:
        found = [await find(subject) for find in finds]
        return next(filter(None, found), None)

    report.add(await verify_gone(find_any, log))
    return report


def _finder(database: Database, kept: EntityTable[Any]) -> Find:
    async def find(subject: str) -> Entity | None:
        found: Entity | None = await find_entity(database, kept, kept.subject == subject)
        return found

    return find
