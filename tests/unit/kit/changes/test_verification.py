"""Whether an entity is what its events lead to."""

from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar

import pytest

from sandyard.kit.changes.events import Event
from sandyard.kit.changes.transitions import DATA, Cause, changed, created, removed
from sandyard.kit.changes.verification import Problem, differences, verify_gone


@dataclass(frozen=True, slots=True)
class Lamp:
    SUBJECT: ClassVar[str] = "lamp_id"
    OWNER: ClassVar[str | None] = None

    lamp_id: str
    is_on: bool
    seen_at: int = field(default=0, metadata=DATA)
    color: str = "white"
    sequence: int = 0


CAUSE = Cause("operator", 1_800_000_000_000)
MADE = created(Lamp("l1", is_on=False), "lamp.made", CAUSE)
LIT = changed(MADE.result, replace(MADE.result, is_on=True), "lamp.lit", CAUSE)
EVENTS = [*MADE.events, *LIT.events]
LAMP = LIT.result


@pytest.mark.parametrize(
    ("lamp", "wrong"),
    [
        (LAMP, []),
        (replace(LAMP, seen_at=9), []),
        (replace(LAMP, is_on=False), ["is_on"]),
        (replace(LAMP, color="red"), ["color"]),
        (replace(LAMP, sequence=3), ["sequence"]),
        (replace(LAMP, sequence=1, is_on=False), ["is_on", "sequence"]),
    ],
)
def test_names_the_fields_that_differ(lamp: Lamp, wrong: list[str]) -> None:
    assert differences(lamp, EVENTS) == wrong


def test_a_field_that_is_younger_than_the_last_full_state_has_its_default() -> None:
    [made] = MADE.events
    old = replace(made, data={"lamp_id": "l1", "is_on": False})
    assert differences(LAMP, [old, *LIT.events]) == []
    assert differences(replace(LAMP, color="red"), [old, *LIT.events]) == ["color"]


def test_something_that_no_events_lead_to_differs() -> None:
    assert differences(LAMP, []) == ["no events lead to it"]
    assert differences(LAMP, [*EVENTS, *removed(LAMP, "lamp.broken", CAUSE).events])


class Log:
    """Of one subject that is gone."""

    def __init__(self, events: Sequence[Event]) -> None:
        self._events = events

    async def gone(self) -> AsyncIterator[Sequence[str]]:
        yield ["l1"]

    async def state_events(self, subjects: Sequence[str]) -> Mapping[str, Sequence[Event]]:
        return dict.fromkeys(subjects, self._events)


async def nothing(_subject: str) -> None:
    return None


async def lamp(_subject: str) -> Lamp:
    return LAMP


async def test_something_that_is_gone_without_an_event_is_a_problem() -> None:
    log: Any = Log(EVENTS)
    message = "is not what its events lead to: it is not there"
    assert (await verify_gone(nothing, log)).problems == [Problem("l1", message)]
    assert (await verify_gone(nothing, log, may_be_gone=lambda s: s["is_on"])).problems == []
    assert (await verify_gone(lamp, log)).problems == [], "it has come back meanwhile"


async def test_something_that_was_removed_is_none() -> None:
    log: Any = Log([*EVENTS, *removed(LAMP, "lamp.broken", CAUSE).events])
    assert (await verify_gone(nothing, log)).problems == []
