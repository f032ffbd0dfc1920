"""How much is simulated in `make torture`, and how a failure is told.

`SANDYARD_SIMULATION_SEED` is the first seed of the long run, `SANDYARD_SIMULATION_OPERATIONS` how
many operations it has in all. In another process a seed replays its run only with the same
`PYTHONHASHSEED`, which the make targets set.
"""

import os
from collections.abc import Callable
from pathlib import Path
from typing import Protocol

from tests.simulation.schedule import Schedule, shrink

OPERATIONS = int(os.environ.get("SANDYARD_SIMULATION_OPERATIONS", "1000000"))
SEED = int(os.environ.get("SANDYARD_SIMULATION_SEED", "1000"))
PER_SEED = 1000


class Outcome(Protocol):
    @property
    def schedule(self) -> Schedule: ...

    @property
    def problems(self) -> list[str]: ...

    def save(self, folder: Path, /) -> None: ...


def seeds(share: float) -> range:
    """The seeds of a part that has this share of all operations."""
    return range(SEED, SEED + int(OPERATIONS * share) // PER_SEED)


def require_none(outcome: Outcome, again: Callable[[Schedule], Outcome], folder: Path) -> None:
    """No problems; else their history is saved, and the smallest schedule that fails too told."""
    if not outcome.problems:
        return
    outcome.save(folder)
    smallest = shrink(outcome.schedule, lambda schedule: bool(again(schedule).problems))
    raise AssertionError(
        f"{outcome.schedule}; fails too: {smallest}; history and events in {folder}: "
        f"{outcome.problems[:10]}"
    )
