"""Previews on servers that die and a provider that loses answers, in virtual time: a project never
has two at once, and none is left without a record."""

import random
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest

from tests.simulation.failures import require_none
from tests.simulation.previews import Kind
from tests.simulation.previews_run import simulate_previews
from tests.simulation.schedule import Schedule

FIXED: list[tuple[Schedule, Kind]] = [
    (Schedule(1, 300), "local"),
    (Schedule(2, 300), "cloud"),
    (Schedule(5, 300), "cloud"),
    (Schedule(1795065007, 100), "local"),
]
"""A seed that failed joins them."""


@pytest.fixture(autouse=True)
def chance() -> Iterator[None]:
    state = random.getstate()
    yield
    random.setstate(state)


@pytest.mark.parametrize(("schedule", "kind"), FIXED, ids=str)
def test_there_is_one_preview_of_a_project_and_it_is_recorded(
    schedule: Schedule, kind: Kind, tmp_path: Path
) -> None:
    again = partial(simulate_previews, kind=kind)
    outcome = again(schedule)
    require_none(outcome, again, tmp_path)
    assert outcome.count("preview.created")
    assert outcome.count("preview.ended")
    assert outcome.faults["answer_lost"]
    assert outcome.kills


def test_a_seed_replays_its_run_exactly() -> None:
    first, second = (simulate_previews(Schedule(4, 60), "cloud") for _ in range(2))
    assert first.history.calls == second.history.calls
    assert simulate_previews(Schedule(5, 60), "cloud").history.calls != first.history.calls
