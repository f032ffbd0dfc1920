"""A check that a part's events lead to the states that its store holds, while traffic flows."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from dataclasses import MISSING, dataclass, field, fields
from typing import Any

from sandyard.kit.events import EventLog, State, fold
from sandyard.kit.transitions import Entity, json_value, state_fields, state_of, subject_of

_LOOKS = 5
_BETWEEN_LOOKS_SEC = 0.2

Find = Callable[[str], Awaitable[Entity | None]]
"""The entity with this subject id, as last written."""


@dataclass(frozen=True, slots=True, order=True)
class Problem:
    subject: str
    message: str


@dataclass(slots=True)
class HistoryReport:
    subjects: int = 0
    problems: list[Problem] = field(default_factory=list)


async def verify_history(
    pages: AsyncIterator[Sequence[Entity]],
    find: Find,
    log: EventLog,
    *,
    progress: Callable[[int], None] = lambda _: None,
) -> HistoryReport:
    """Fold the events of every entity and compare.

    Entities change while they are read, so one that differs is looked at again: only what differs
    at several looks in a row is a problem.
    """
    report = HistoryReport()
    async for entities in pages:
        events = await log.state_events([subject_of(each) for each in entities])
        for entity in entities:
            subject = subject_of(entity)
            if differences(entity, fold(events.get(subject, ()))):
                message = await _confirm(subject, find, log)
                if message:
                    report.problems.append(Problem(subject, message))
        report.subjects += len(entities)
        progress(report.subjects)
    return report


def differences(entity: Entity, folded: State | None) -> list[str]:
    """The fields in which the entity is not what its events lead to. A field that is younger than
    the last full state has its default."""
    if folded is None:
        return ["no events lead to it"]
    state = state_of(entity)
    defaults = _defaults(type(entity))
    return [name for name, value in state.items() if value != folded.get(name, defaults.get(name))]


async def _confirm(subject: str, find: Find, log: EventLog) -> str | None:
    wrong: list[str] = []
    for look in range(_LOOKS):
        if look:
            await asyncio.sleep(_BETWEEN_LOOKS_SEC)
        entity = await find(subject)
        if entity is None:
            return None
        wrong = differences(entity, fold((await log.state_events([subject])).get(subject, ())))
        if not wrong:
            return None
    return f"is not what its events lead to: {', '.join(wrong)}"


def _defaults(kind: type) -> dict[str, Any]:
    named = set(state_fields(kind))
    return {
        each.name: json_value(each.default)
        for each in fields(kind)
        if each.name in named and each.default is not MISSING
    }
