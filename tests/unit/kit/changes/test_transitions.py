"""Transitions: what an event holds of an entity, and what it never holds."""

from dataclasses import dataclass, field, replace
from datetime import UTC, date, datetime, timedelta, timezone
from decimal import Decimal
from enum import StrEnum
from typing import ClassVar

import pytest

from sandyard.kit.changes.events import Effect
from sandyard.kit.changes.transitions import (
    ATTEMPTS,
    DATA,
    FULL_EVERY,
    SECRET,
    Cause,
    Transition,
    apply_decision,
    change_entity,
    changed,
    changed_fields,
    created,
    json_value,
    recorded,
    removed,
    replaced,
    state_of,
    stateless_event,
)

CAUSE = Cause("operator", 1_800_000_000_123, "because")


class Colour(StrEnum):
    RED = "red"
    BLUE = "blue"


@dataclass(frozen=True, slots=True)
class Thing:
    SUBJECT: ClassVar[str] = "thing_id"
    OWNER: ClassVar[str | None] = "account_id"

    thing_id: str
    account_id: str
    colour: Colour
    key_hash: str = field(default="hash", metadata=SECRET)
    last_used_at: int = field(default=0, metadata=DATA)
    size: int | None = None
    sequence: int = 0


THING = Thing("t1", "123456789012", Colour.RED, sequence=5)


def test_state_has_neither_secrets_nor_data_nor_the_sequence() -> None:
    assert state_of(THING) == {
        "thing_id": "t1",
        "account_id": "123456789012",
        "colour": "red",
        "size": None,
    }


def test_one_that_is_created_begins_with_its_whole_state() -> None:
    made = created(THING, "thing.created", CAUSE)
    assert made.before is None
    assert made.result == replace(THING, sequence=1)
    [event] = made.events
    assert (event.kind, event.subject, event.sequence) == ("thing.created", "t1", 1)
    assert (event.actor, event.at_ms, event.reason) == ("operator", CAUSE.at_ms, "because")
    assert event.account_id == "123456789012"
    assert event.effect is Effect.FULL
    assert event.data == state_of(THING)


def test_one_that_may_come_again_begins_where_it_is_told() -> None:
    assert created(THING, "thing.created", CAUSE, first=77).result.sequence == 77


def test_a_change_holds_what_is_different_and_counts_up() -> None:
    after = replace(THING, colour=Colour.BLUE, key_hash="other", last_used_at=9)
    change = changed(THING, after, "thing.painted", CAUSE)
    assert change.before is THING
    assert change.result == replace(after, sequence=6)
    [event] = change.events
    assert event.effect is Effect.PARTIAL
    assert event.data == {"colour": "blue"}
    assert event.sequence == 6


@pytest.mark.parametrize("size", [None, 3])
def test_a_change_of_known_fields_is_the_same(size: int | None) -> None:
    changes = {"colour": Colour.BLUE, "size": size}
    slow = changed(THING, replace(THING, colour=Colour.BLUE, size=size), "thing.painted", CAUSE)
    assert changed_fields(THING, changes, "thing.painted", CAUSE) == slow


def test_what_takes_its_place_is_told_whole() -> None:
    other = replace(THING, thing_id="t1", size=1)
    [event] = replaced(THING, other, "thing.replaced", CAUSE).events
    assert (event.effect, event.sequence, event.data) == (Effect.FULL, 6, state_of(other))


def test_one_that_is_removed_has_no_result() -> None:
    gone = removed(THING, "thing.removed", CAUSE)
    [event] = gone.events
    assert (event.effect, event.sequence, event.data) == (Effect.REMOVED, 6, {})
    with pytest.raises(ValueError, match="removed"):
        _ = gone.result


def test_facts_go_along() -> None:
    assert changed(THING, THING, "x", CAUSE, preconditions=(1,)).preconditions == (1,)
    assert created(THING, "x", CAUSE, preconditions=(2,)).preconditions == (2,)
    assert Transition(None, THING, ()).preconditions == ()


def test_a_remark_changes_nothing() -> None:
    event = stateless_event("t1", "login.failed", CAUSE, data={"address": "::1"})
    assert (event.sequence, event.effect, event.data) == (None, Effect.NONE, {"address": "::1"})


@dataclass(frozen=True)
class Part:
    at: datetime


@pytest.mark.parametrize(
    ("value", "form"),
    [
        (None, None),
        (True, True),
        (1.5, 1.5),
        ("text", "text"),
        (Colour.RED, "red"),
        (Decimal("1.500000"), "1.500000"),
        (Decimal("1E+3"), "1000"),
        (date(2026, 1, 2), "2026-01-02"),
        (datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC), "2026-01-02T03:04:05.000000Z"),
        (
            datetime(2026, 1, 2, 3, 4, 5, 6, tzinfo=timezone(timedelta(hours=2))),
            "2026-01-02T01:04:05.000006Z",
        ),
        ({1: Colour.BLUE}, {"1": "blue"}),
        ((1, Decimal(2)), [1, "2"]),
        (
            Part(datetime(2026, 1, 2, tzinfo=UTC)),
            {"at": "2026-01-02T00:00:00.000000Z"},
        ),
    ],
)
def test_values_have_one_form_in_json(value: object, form: object) -> None:
    assert json_value(value) == form


def test_a_value_without_a_form_is_refused() -> None:
    with pytest.raises(TypeError, match="object"):
        json_value(object())


@pytest.mark.parametrize(
    ("sequence", "effect"),
    [
        (1, Effect.PARTIAL),
        (FULL_EVERY - 2, Effect.PARTIAL),
        (FULL_EVERY - 1, Effect.FULL),
        (FULL_EVERY, Effect.PARTIAL),
        (2 * FULL_EVERY - 1, Effect.FULL),
    ],
)
def test_a_change_tells_the_whole_state_now_and_then(sequence: int, effect: Effect) -> None:
    before = replace(THING, sequence=sequence)
    [event] = changed(before, replace(before, size=7), "thing.changed", CAUSE).events
    assert (event.effect, event.sequence) == (effect, sequence + 1)
    assert event.data == (
        state_of(replace(before, size=7)) if effect is Effect.FULL else {"size": 7}
    )
    assert changed_fields(before, {"size": 7}, "thing.changed", CAUSE).events == (event,)


class Store:
    """Has one thing; the first `conflicts` changes come too late."""

    def __init__(self, thing: Thing | None, *, conflicts: int = 0) -> None:
        self.thing = thing
        self.conflicts = conflicts

    async def find(self) -> Thing | None:
        return self.thing

    async def apply(self, transition: Transition[Thing]) -> bool:
        self.conflicts -= 1
        if self.conflicts >= 0:
            return False
        self.thing = transition.after
        return True


class BusyError(Exception):
    pass


def paint(thing: Thing | None) -> Transition[Thing] | None:
    assert thing is not None
    if thing.colour is Colour.BLUE:
        return None
    return changed(thing, replace(thing, colour=Colour.BLUE), "thing.painted", CAUSE)


def remove(thing: Thing | None) -> Transition[Thing] | None:
    assert thing is not None
    return removed(thing, "thing.removed", CAUSE)


@pytest.mark.parametrize("conflicts", [0, 1, 3])
async def test_a_change_is_decided_again_after_a_conflict(conflicts: int) -> None:
    store = Store(THING, conflicts=conflicts)
    painted = await change_entity(store.find, paint, store.apply, busy=BusyError)
    assert painted == store.thing
    assert painted.colour is Colour.BLUE


async def test_an_entity_that_need_not_change_is_returned_as_it_is() -> None:
    blue = replace(THING, colour=Colour.BLUE)
    store = Store(blue, conflicts=1)
    assert await change_entity(store.find, paint, store.apply, busy=BusyError) is blue
    assert store.conflicts == 1


async def test_a_removed_entity_is_returned_as_it_was() -> None:
    store = Store(THING)
    assert await change_entity(store.find, remove, store.apply, busy=BusyError) is THING
    assert store.thing is None


async def test_too_many_conflicts_are_an_error() -> None:
    store = Store(THING, conflicts=ATTEMPTS)
    with pytest.raises(BusyError):
        await change_entity(store.find, paint, store.apply, busy=BusyError)
    store = Store(THING, conflicts=ATTEMPTS)
    with pytest.raises(BusyError):
        await apply_decision(lambda: _decide(store), store.apply, busy=BusyError)


async def _decide(store: Store) -> Transition[Thing] | None:
    return paint(await store.find())


async def test_a_decision_is_applied_or_empty() -> None:
    store = Store(THING, conflicts=2)
    painted = await apply_decision(lambda: _decide(store), store.apply, busy=BusyError)
    assert painted is not None
    assert painted.after == store.thing
    assert await apply_decision(lambda: _decide(store), store.apply, busy=BusyError) is None


def test_a_long_text_is_its_hash_in_events() -> None:
    short, long = recorded("x" * 1000), recorded("x" * 1001)
    assert short == "x" * 1000
    assert long == recorded(long)
    assert (long["bytes"], len(long["sha256"])) == (1003, 64)
    assert recorded({"b": "x" * 1000, "a": 1}) == recorded({"a": 1, "b": "x" * 1000})
    assert recorded(["x"] * 10) == ["x"] * 10
