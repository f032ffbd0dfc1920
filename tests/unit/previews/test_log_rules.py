"""Two previews of a project at once are found in its events."""

from datetime import timedelta
from typing import Any

import pytest

from sandyard.kit.changes.events import Effect, Event
from sandyard.kit.clock import utc_time
from sandyard.previews.log_rules import broken_previews

NOW = 1_800_000_000


def at(minutes: float) -> str:
    return (utc_time(NOW) + timedelta(minutes=minutes)).isoformat()


def requested(minute: float, name: str) -> tuple[float, str, dict[str, Any]]:
    attempt = {"id": name, "until": at(minute + 3)}
    return minute, "preview.requested", {"attempt": attempt}


def created(minute: float, name: str) -> tuple[float, str, dict[str, Any]]:
    info = {"sandbox_id": f"of-{name}", "attempt": name}
    info |= {"start_time": at(minute), "end_time": at(minute + 30)}
    return minute, "preview.created", {"info": info, "attempt": None}


def ended(minute: float, name: str) -> tuple[float, str, dict[str, Any]]:
    _, _, data = created(minute - 30, name)
    return minute, "preview.ended", data


def told(*steps: tuple[float, str, dict[str, Any]]) -> list[str]:
    empty: dict[str, Any] = {"info": None, "attempt": None}
    events = [Event("preview.requested", "p", 1, "system", NOW * 1000, Effect.FULL, empty)]
    for number, (minute, kind, data) in enumerate(steps):
        at_ms = int((NOW + 60 * minute) * 1000)
        events.append(Event(kind, "p", number + 2, "system", at_ms, Effect.PARTIAL, data))
    return broken_previews(events)


@pytest.mark.parametrize(
    "steps",
    [
        [requested(0, "a"), created(1, "a"), requested(32, "b"), created(33, "b")],
        [requested(0, "a"), created(1, "a"), ended(5, "a"), requested(6, "b"), created(7, "b")],
        [requested(0, "a"), requested(4, "b"), created(5, "b")],
        [requested(0, "a"), (1, "preview.abandoned", {"attempt": None}), requested(1.1, "b")],
    ],
)
def test_one_after_another_is_no_problem(steps: list[tuple[float, str, dict[str, Any]]]) -> None:
    assert told(*steps) == []


@pytest.mark.parametrize(
    ("steps", "problem"),
    [
        ([requested(0, "a"), requested(1, "b")], "by another attempt before the end of a"),
        ([requested(0, "a"), created(1, "b")], "of-b was made by no attempt of its time"),
        (
            [requested(0, "a"), created(1, "a"), requested(8, "b"), created(9, "b")],
            "of-b was made before the end of of-a",
        ),
    ],
)
def test_two_at_once_are_found(
    steps: list[tuple[float, str, dict[str, Any]]], problem: str
) -> None:
    [found] = told(*steps)
    assert problem in found
