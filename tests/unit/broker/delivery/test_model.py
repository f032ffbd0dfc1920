"""Which events a sink wants, and when a failed one is tried again."""

import pytest

from sandyard.broker.delivery.model import RetryPolicy, StreamState, wants
from sandyard.kit.changes.events import Effect, Event, LoggedEvent
from sandyard.kit.ids import EventIds


@pytest.mark.parametrize(
    ("kinds", "kind", "wanted"),
    [
        ([], "lease.created", True),
        (["*"], "lease.created", True),
        (["lease.*"], "lease.created", True),
        (["lease.*"], "leases.created", False),
        (["lease.created"], "lease.created", True),
        (["lease.created"], "lease.created_again", False),
        (["pool.low", "lease.*"], "lease.ended", True),
        (["pool.low"], "lease.ended", False),
    ],
)
def test_a_filter_names_kinds_or_how_they_begin(kinds: list[str], kind: str, wanted: bool) -> None:
    assert wants(kinds, kind) is wanted


def test_delays_double_up_to_the_longest_and_are_spread() -> None:
    policy = RetryPolicy(first_sec=1, longest_sec=300)
    assert [policy.delay(failures, 1) for failures in (1, 2, 3, 9, 10, 5000)] == [
        1,
        2,
        4,
        256,
        300,
        300,
    ]
    assert policy.delay(3, 0) == 2


def test_it_is_given_up_at_the_very_end_of_the_time() -> None:
    policy = RetryPolicy(give_up_sec=60)
    assert not policy.is_over(failing_since_ms=1000, now_ms=60_999)
    assert policy.is_over(failing_since_ms=1000, now_ms=61_000)


def test_events_are_due_from_the_very_millisecond_on() -> None:
    state = StreamState("sqs", "broker", since_ms=1000, position=None)
    make_id = EventIds()
    due = [
        state.is_due(LoggedEvent(make_id(at_ms), "broker", _event(at_ms)))
        for at_ms in (999, 1000, 1001)
    ]
    assert due == [False, True, True]


def _event(at_ms: int) -> Event:
    return Event("lease.created", "s", 1, "operator", at_ms, Effect.NONE)
