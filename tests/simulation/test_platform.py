"""Sandboxes on nodes that die, forget and disagree, in virtual time: every run is started once,
ended once and paid for once."""

import random
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.simulation.failures import require_none
from tests.simulation.platform_run import simulate_platform
from tests.simulation.schedule import Schedule

FIXED = [Schedule(1, 300), Schedule(3, 600), Schedule(12, 600), Schedule(2000, 1000)]
"""A seed that failed joins them."""


@pytest.fixture(autouse=True)
def chance() -> Iterator[None]:
    state = random.getstate()
    yield
    random.setstate(state)


@pytest.mark.parametrize("schedule", FIXED, ids=str)
def test_every_run_is_recorded_as_it_was(schedule: Schedule, tmp_path: Path) -> None:
    outcome = simulate_platform(schedule)
    require_none(outcome, simulate_platform, tmp_path)
    assert outcome.count("sandbox.started")
    assert outcome.count("sandbox.timed_out")
    assert outcome.count("bill.created")
    assert outcome.faults["answer_lost"]
    assert outcome.kills


def test_a_seed_replays_its_run_exactly() -> None:
    first, second = (simulate_platform(Schedule(4, 60)) for _ in range(2))
    assert first.history.calls == second.history.calls
    assert simulate_platform(Schedule(5, 60)).history.calls != first.history.calls
