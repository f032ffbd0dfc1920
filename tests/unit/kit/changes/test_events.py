"""Events: actors, folding, and ids that sort by time."""

from collections.abc import Sequence

import pytest

from sandyard.kit.changes.events import Effect, Event, State, actor, fold
from sandyard.kit.ids import EventIds, first_event_id


def event(effect: Effect, **data: object) -> Event:
    return Event("thing.changed", "t1", 1, "operator", 0, effect, data)


@pytest.mark.parametrize(
    ("events", "state"),
    [
        ([], None),
        ([event(Effect.PARTIAL, a=1)], None),
        ([event(Effect.FULL, a=1, b=2)], {"a": 1, "b": 2}),
        ([event(Effect.FULL, a=1, b=2), event(Effect.PARTIAL, b=None)], {"a": 1, "b": None}),
        ([event(Effect.FULL, a=1), event(Effect.NONE, a=9)], {"a": 1}),
        ([event(Effect.FULL, a=1, b=2), event(Effect.FULL, a=3)], {"a": 3}),
        ([event(Effect.FULL, a=1), event(Effect.REMOVED)], None),
        ([event(Effect.FULL, a=1), event(Effect.REMOVED), event(Effect.PARTIAL, a=2)], None),
        ([event(Effect.FULL, a=1), event(Effect.REMOVED), event(Effect.FULL, a=2)], {"a": 2}),
    ],
)
def test_folding_gives_the_state(events: Sequence[Event], state: State | None) -> None:
    assert fold(events) == state


def test_folding_leaves_the_events_alone() -> None:
    first = event(Effect.FULL, a=1)
    fold([first, event(Effect.PARTIAL, a=2)])
    assert first.data == {"a": 1}


def test_actors_have_a_kind_and_mostly_a_name() -> None:
    assert actor("track", "demo") == "track:demo"
    assert actor("operator") == "operator"


def test_ids_sort_by_time_and_then_as_they_were_made() -> None:
    make = EventIds()
    made = [make(at_ms) for at_ms in (5, 5, 5, 6, 1_800_000_000_000)]
    assert made == sorted(made)
    assert len(set(made)) == 5
    assert {len(each) for each in made} == {26}


def test_the_first_id_of_a_time_is_between_what_came_before_and_after() -> None:
    make = EventIds()
    assert make(1_799_999_999_999) < first_event_id(1_800_000_000_000) < make(1_800_000_000_000)
