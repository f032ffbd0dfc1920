"""The Broker under every fault at once, in virtual time: what was answered is true. One run in
twenty is on SQLite, the others have a store in memory."""

import random
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest

from tests.faults.cluster import SETTINGS
from tests.simulation.long_run import PER_SEED, require_none, seeds
from tests.simulation.run import Engine, simulate
from tests.simulation.schedule import Schedule

FIXED_SEEDS: list[tuple[int, Engine]] = [(1, "sqlite"), (2, "memory"), (5, "memory"), (8, "memory")]
"""A seed that failed joins them."""
OPERATIONS = {"sqlite": 150, "memory": 600}
ON_SQLITE = 20
"""Every twentieth seed."""


@pytest.fixture(autouse=True)
def settings(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    for name, value in SETTINGS.items():
        monkeypatch.setenv(name, value)
    state = random.getstate()
    yield
    random.setstate(state)


@pytest.mark.parametrize(("seed", "engine"), FIXED_SEEDS)
def test_what_was_answered_is_true_whatever_failed(
    seed: int, engine: Engine, tmp_path: Path
) -> None:
    again = partial(simulate, engine=engine)
    outcome = again(Schedule(seed, OPERATIONS[engine]))
    require_none(outcome, again, tmp_path)
    assert outcome.answered("allocate", 201)
    assert outcome.faults["answer_lost"]
    assert outcome.kills


def test_a_seed_replays_its_run_exactly() -> None:
    first, second = simulate(Schedule(3, 40)), simulate(Schedule(3, 40))
    assert first.history.attempts == second.history.attempts
    assert simulate(Schedule(4, 40)).history.attempts != first.history.attempts


@pytest.mark.torture
@pytest.mark.timeout(7200)
@pytest.mark.parametrize("seed", seeds(share=0.8))
def test_new_seeds_find_nothing(seed: int, tmp_path: Path) -> None:
    engine: Engine = "memory" if seed % ON_SQLITE else "sqlite"
    again = partial(simulate, engine=engine)
    require_none(again(Schedule(seed, PER_SEED)), again, tmp_path)
