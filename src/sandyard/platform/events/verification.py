"""Checks that the Platform's events match its tables, also while it is in use."""

from collections.abc import Callable
from typing import Any

from sandyard.kit.changes.transitions import Entity
from sandyard.kit.changes.verification import (
    Find,
    HistoryReport,
    verify_gone,
    verify_history,
)
from sandyard.kit.sql.database import Database
from sandyard.kit.sql.entities import all_entities, find_entity
from sandyard.kit.sql.transitions import EntityTable
from sandyard.platform.events.entities import ENTITY_TABLES, platform_events


async def verify_platform(
    database: Database, *, progress: Callable[[int], None] = lambda _: None
) -> HistoryReport:
    """Compare every entity of the Platform with its events."""
    log, report = platform_events(database), HistoryReport()
    for mapping in ENTITY_TABLES:
        find = _finder(database, mapping)
        report.add(await verify_history(all_entities(database, mapping), find, log))
        progress(report.subjects)

    report.add(await verify_gone(_find_any(database), log))
    return report


def _find_any(database: Database) -> Find:
    async def find(subject: str) -> Entity | None:
        found = [await _finder(database, mapping)(subject) for mapping in ENTITY_TABLES]
        return next(filter(None, found), None)

    return find


def _finder(database: Database, mapping: EntityTable[Any]) -> Find:
    async def find(subject: str) -> Entity | None:
        found: Entity | None = await find_entity(database, mapping, mapping.subject == subject)
        return found

    return find
