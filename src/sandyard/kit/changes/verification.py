"""Verifies that a part's events and its stored state agree, also under traffic."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from dataclasses import MISSING, dataclass, field, fields
from typing import Any, TypeVar

from sandyard.kit.changes.events import Event, EventLog, State, fold
from sandyard.kit.changes.transitions import Entity, recorded, state_fields, state_of, subject_of

T = TypeVar("T")

_LOOKS = 5
_BETWEEN_LOOKS_SEC = 0.2

Find = Callable[[str], Awaitable[Entity | None]]
"""Returns the entity with this subject id, as last written."""
_Compare = Callable[[Entity | None, Sequence[Event]], list[str]]
"""Returns the differences between an entity and its events."""
Rules = Callable[[Sequence[Event]], list[str]]
"""Returns what the events of a subject, in order from a full state on, must never say."""


@dataclass(frozen=True, slots=True, order=True)
class Problem:
    subject: str
    message: str


@dataclass(slots=True)
class HistoryReport:
    subjects: int = 0
    problems: list[Problem] = field(default_factory=list)

    def add(self, other: "HistoryReport") -> None:
        self.subjects += other.subjects
        self.problems += other.problems


async def verify_history(
    pages: AsyncIterator[Sequence[Entity]],
    find: Find,
    log: EventLog,
    *,
    progress: Callable[[int], None] = lambda _: None,
    rules: Rules = lambda _: [],
) -> HistoryReport:
    """Fold the events of every entity and compare; check them by the rules.

    Entities change while they are read, so one that differs is checked again: only repeated
    differences are a problem.
    """
    report = HistoryReport()
    async for entities in pages:
        events = await log.state_events([subject_of(each) for each in entities])
        for entity in entities:
            subject = subject_of(entity)
            of_subject = events.get(subject, ())
            report.problems += [Problem(subject, each) for each in rules(of_subject)]
            if differences(entity, of_subject):
                report.problems += await _confirm(subject, find, log, _differences_if_there)
        report.subjects += len(entities)
        progress(report.subjects)
    return report


async def verify_gone(
    find: Find,
    log: EventLog,
    *,
    may_be_gone: Callable[[State], bool] = lambda _: False,
    rules: Rules = lambda _: [],
) -> HistoryReport:
    """The reverse check: find subjects that do not exist although their events produce a state, and
    check their events by the rules. `may_be_gone` says for which states that is no problem."""

    def compare(entity: Entity | None, events: Sequence[Event]) -> list[str]:
        state = fold(events)
        is_lost = entity is None and state is not None and not may_be_gone(state)
        return ["it is not there"] if is_lost else []

    report = HistoryReport()
    async for subjects in log.gone():
        events = await log.state_events(subjects)
        for subject in subjects:
            report.problems += [Problem(subject, each) for each in rules(events.get(subject, ()))]
            if compare(None, events.get(subject, ())):
                report.problems += await _confirm(subject, find, log, compare)
    return report


def differences(entity: Entity, events: Sequence[Event]) -> list[str]:
    """The fields in which the entity does not match its events. A field added after the last full
    state has its default."""
    folded = fold(events)
    if folded is None:
        return ["no events lead to it"]
    defaults = _defaults(type(entity))
    wrong = [
        name
        for name, value in state_of(entity).items()
        if value != recorded(folded.get(name, defaults.get(name)))
    ]
    return wrong if entity.sequence == events[-1].sequence else [*wrong, "sequence"]


def _differences_if_there(entity: Entity | None, events: Sequence[Event]) -> list[str]:
    return [] if entity is None else differences(entity, events)


async def _confirm(subject: str, find: Find, log: EventLog, compare: _Compare) -> list[Problem]:
    async def look() -> list[str]:
        entity = await find(subject)
        return compare(entity, (await log.state_events([subject])).get(subject, ()))

    wrong = await seen_repeatedly(look)
    shown = f"is not what its events lead to: {', '.join(wrong)}"
    return [Problem(subject, shown)] if wrong else []


async def seen_repeatedly(look: Callable[[], Awaitable[T]]) -> T:
    """What is wrong at several looks; what is read at different instants may differ once."""
    wrong = await look()
    for _ in range(_LOOKS - 1):
        if not wrong:
            break
        await asyncio.sleep(_BETWEEN_LOOKS_SEC)
        wrong = await look()
    return wrong


def _defaults(kind: type) -> dict[str, Any]:
    forms = state_fields(kind)
    return {
        each.name: forms[each.name](each.default)
        for each in fields(kind)
        if each.name in forms and each.default is not MISSING
    }
