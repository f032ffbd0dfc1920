"""The Broker under every fault at once, in virtual time: what was answered is true."""

import random
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Literal

import pytest

from tests.simulation.failures import require_none
from tests.simulation.run import simulate
from tests.simulation.schedule import Schedule

InMemory = Literal["memory", "sqlite"]

FIXED: list[tuple[Schedule, InMemory]] = [
    (Schedule(1, 150), "sqlite"),
    (Schedule(2, 600), "memory"),
    (Schedule(5, 600), "memory"),
    (Schedule(8, 600), "memory"),
    (Schedule(3006, 1000), "memory"),
    (Schedule(1795053965, 1000), "memory"),
    (Schedule(1795125160, 500), "memory"),
    (Schedule(1795125163, 1000), "memory"),
    (Schedule(1795125255, 810), "memory"),
]
"""A seed that failed joins them."""


@pytest.fixture(autouse=True)
def chance() -> Iterator[None]:
    state = random.getstate()
    yield
    random.setstate(state)


@pytest.mark.parametrize(("schedule", "engine"), FIXED, ids=str)
def test_what_was_answered_is_true_whatever_failed(
    schedule: Schedule, engine: InMemory, tmp_path: Path
) -> None:
    again = partial(simulate, engine=engine)
    outcome = again(schedule)
    require_none(outcome, again, tmp_path)
    assert outcome.answered("allocate", 201)
    assert outcome.faults["answer_lost"]
    assert outcome.kills


def test_a_seed_replays_its_run_exactly() -> None:
    first, second = simulate(Schedule(3, 40)), simulate(Schedule(3, 40))
    assert first.history.attempts == second.history.attempts
    assert simulate(Schedule(4, 40)).history.attempts != first.history.attempts
