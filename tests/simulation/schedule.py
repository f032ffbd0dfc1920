"""What a run is made of besides its seed, and the smallest of it that still fails."""

import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Literal

from tests.simulation.network import Faults

Trouble = Literal[
    "request_lost", "answer_lost", "throttled", "doubled", "late", "kills", "outages", "skew"
]
TROUBLES: frozenset[Trouble] = frozenset(
    ("request_lost", "answer_lost", "throttled", "doubled", "late", "kills", "outages", "skew")
)
MOST_RUNS = 40
_MOST_SEC = 30.0
"""Of CPU; after this a smaller schedule is no longer looked for."""


@dataclass(frozen=True, slots=True)
class Schedule:
    seed: int
    operations: int
    troubles: frozenset[Trouble] = TROUBLES

    def has(self, trouble: Trouble) -> bool:
        return trouble in self.troubles

    def allowed(self, faults: Faults) -> Faults:
        """Those that this schedule has."""
        return replace(
            faults, **{name: 0.0 for name in Faults.names() if name not in self.troubles}
        )

    def __str__(self) -> str:
        troubles = ", ".join(sorted(self.troubles)) or "none"
        return f"seed {self.seed}, {self.operations} operations, troubles: {troubles}"


def shrink(schedule: Schedule, fails: Callable[[Schedule], bool]) -> Schedule:
    """A schedule of the same seed that fails too: with as few operations and kinds of trouble as
    are found in `MOST_RUNS` runs, or in half a minute."""
    search = _Shrinking(schedule, fails)
    search.try_fewer_operations()
    for trouble in sorted(schedule.troubles):
        search.try_one(replace(search.smallest, troubles=search.smallest.troubles - {trouble}))
    search.try_fewer_operations()
    return search.smallest


@dataclass(slots=True)
class _Shrinking:
    smallest: Schedule
    fails: Callable[[Schedule], bool]
    runs: int = 0
    began: float = field(default_factory=time.process_time)

    def try_one(self, candidate: Schedule) -> bool:
        self.runs += 1
        is_in_time = self.runs <= MOST_RUNS and time.process_time() - self.began < _MOST_SEC
        is_smaller = is_in_time and self.fails(candidate)
        if is_smaller:
            self.smallest = candidate
        return is_smaller

    def try_fewer_operations(self) -> None:
        for share in (0.25, 0.5, 0.75, 0.9):
            while fewer := int(self.smallest.operations * share):
                if not self.try_one(replace(self.smallest, operations=fewer)):
                    break
