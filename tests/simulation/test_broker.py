"""The Broker under every fault at once, in virtual time: what was answered is true.

`SANDYARD_SIMULATION_SEED` is the first seed of the long run, `SANDYARD_SIMULATION_OPERATIONS` how
many operations it has in all; one in twenty is on SQLite. In another process a seed replays its run
only with the same `PYTHONHASHSEED`, which the make targets set.
"""

import os
import random
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.faults.cluster import SETTINGS
from tests.simulation.run import Engine, Outcome, simulate

FIXED_SEEDS: list[tuple[int, Engine]] = [(1, "sqlite"), (2, "memory"), (5, "memory"), (8, "memory")]
"""A seed that failed joins them."""
OPERATIONS = {"sqlite": 150, "memory": 600}
LONG_RUN = int(os.environ.get("SANDYARD_SIMULATION_OPERATIONS", "1000000"))
LONG_SEED = int(os.environ.get("SANDYARD_SIMULATION_SEED", "1000"))
OPERATIONS_PER_SEED = 1000
ON_SQLITE = 20
"""Every twentieth seed."""


@pytest.fixture(autouse=True)
def settings(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    for name, value in SETTINGS.items():
        monkeypatch.setenv(name, value)
    state = random.getstate()
    yield
    random.setstate(state)


def check(outcome: Outcome, folder: Path) -> None:
    if outcome.problems:
        outcome.save(folder)
    where = f"seed {outcome.seed}, history and events in {folder}: "
    assert outcome.problems == [], where + str(outcome.problems[:10])


@pytest.mark.parametrize(("seed", "engine"), FIXED_SEEDS)
def test_what_was_answered_is_true_whatever_failed(
    seed: int, engine: Engine, tmp_path: Path
) -> None:
    outcome = simulate(seed, OPERATIONS[engine], engine)
    check(outcome, tmp_path)
    assert outcome.answered("allocate", 201)
    assert outcome.faults["answer_lost"]
    assert outcome.kills


def test_a_seed_replays_its_run_exactly() -> None:
    first, second = simulate(3, 40), simulate(3, 40)
    assert first.history.attempts == second.history.attempts
    assert simulate(4, 40).history.attempts != first.history.attempts


@pytest.mark.torture
@pytest.mark.timeout(7200)
@pytest.mark.parametrize("seed", range(LONG_SEED, LONG_SEED + LONG_RUN // OPERATIONS_PER_SEED))
def test_new_seeds_find_nothing(seed: int, tmp_path: Path) -> None:
    engine: Engine = "memory" if seed % ON_SQLITE else "sqlite"
    check(simulate(seed, OPERATIONS_PER_SEED, engine), tmp_path)
