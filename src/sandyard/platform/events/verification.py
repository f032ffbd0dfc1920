"""Checks that the Platform's events match its tables, and that neither tells what can't be."""

from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

from sandyard.kit.changes import verification
from sandyard.kit.changes.events import Event
from sandyard.kit.changes.transitions import Entity
from sandyard.kit.sql.database import Database
from sandyard.kit.sql.entities import all_entities, find_entities, find_entity
from sandyard.kit.sql.transitions import EntityTable
from sandyard.platform.billing.sql import BILLS
from sandyard.platform.events.entities import ENTITY_TABLES, platform_events
from sandyard.platform.events.log_rules import broken_runs, broken_usages
from sandyard.platform.sandboxes.sql.store import SANDBOXES
from sandyard.platform.usage.sql import USAGES


async def verify_platform(
    database: Database, *, progress: Callable[[int], None] = lambda _: None
) -> verification.HistoryReport:
    log, report = platform_events(database), verification.HistoryReport()
    for mapping in ENTITY_TABLES:
        find = _finder(database, mapping)
        rules = broken_runs if mapping is SANDBOXES else _no_rules
        pages = all_entities(database, mapping)
        report.add(await verification.verify_history(pages, find, log, rules=rules))
        progress(report.subjects)

    report.add(await verification.verify_gone(_find_any(database), log))
    async for sandboxes in all_entities(database, SANDBOXES):
        ids = [each.sandbox_id for each in sandboxes]
        found = await _usage_problems(database, ids)
        suspects = {each.subject for each in found}
        for subject in sorted(suspects):
            wrong = await verification.seen_repeatedly(partial(_wrong_usages, database, subject))
            report.problems += [verification.Problem(subject, each) for each in wrong]
    return report


def _no_rules(_events: Sequence[Event]) -> list[str]:
    return []


async def _wrong_usages(database: Database, sandbox_id: str) -> list[str]:
    return [each.message for each in await _usage_problems(database, [sandbox_id])]


async def _usage_problems(
    database: Database, sandbox_ids: Sequence[str]
) -> list[verification.Problem]:
    """They are read one after another, so what changes meanwhile may look wrong once."""

    async def of_sandbox(mapping: EntityTable[Any]) -> Mapping[str, Sequence[Any]]:
        column, found = mapping.table.c.sandbox_id, defaultdict(list)
        for each in await find_entities(database, mapping, column.in_(sandbox_ids)):
            found[each.sandbox_id].append(each)
        return found

    bills, usages = await of_sandbox(BILLS), await of_sandbox(USAGES)
    sandboxes = await of_sandbox(SANDBOXES)
    events = await platform_events(database).state_events(sandbox_ids)
    return [
        verification.Problem(sandbox_id, message)
        for sandbox_id, [sandbox] in sandboxes.items()
        for message in broken_usages(
            sandbox,
            events.get(sandbox_id, ()),
            usages.get(sandbox_id, ()),
            bills.get(sandbox_id, ()),
        )
    ]


def _find_any(database: Database) -> verification.Find:
    async def find(subject: str) -> Entity | None:
        found = [await _finder(database, mapping)(subject) for mapping in ENTITY_TABLES]
        return next(filter(None, found), None)

    return find


def _finder(database: Database, mapping: EntityTable[Any]) -> verification.Find:
    async def find(subject: str) -> Entity | None:
        found: Entity | None = await find_entity(database, mapping, mapping.subject == subject)
        return found

    return find
