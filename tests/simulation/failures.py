"""How a failure is told: its seed, a smaller schedule that fails too, and where its history is."""

from collections.abc import Callable
from pathlib import Path

from tests.simulation.parts import Outcome
from tests.simulation.schedule import Schedule, shrink


def require_none(outcome: Outcome, again: Callable[[Schedule], Outcome], folder: Path) -> None:
    """Raises an AssertionError if there are problems; then their history is saved."""
    if outcome.problems:
        raise AssertionError(describe(outcome, again, folder))


def describe(outcome: Outcome, again: Callable[[Schedule], Outcome], folder: Path) -> str:
    outcome.save(folder)
    smallest = shrink(outcome.schedule, lambda schedule: bool(again(schedule).problems))
    return (
        f"{outcome.schedule}; fails too: {smallest}; history and events in {folder}: "
        f"{outcome.problems[:10]}"
    )
