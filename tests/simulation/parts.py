"""The parts that are simulated, and the one place that picks what a seed runs on."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from tests.simulation.platform_run import simulate_platform
from tests.simulation.previews_run import simulate_previews
from tests.simulation.run import simulate
from tests.simulation.schedule import Schedule

_ON_SQLITE = 20
"""Every twentieth seed of the Broker; the others have a store in memory."""


class Outcome(Protocol):
    @property
    def schedule(self) -> Schedule: ...

    @property
    def operations(self) -> int: ...

    @property
    def faults(self) -> Mapping[str, int]: ...

    @property
    def kills(self) -> int: ...

    @property
    def problems(self) -> Sequence[str]: ...

    def save(self, folder: Path, /) -> None: ...


@dataclass(frozen=True, slots=True)
class Part:
    share: float
    """Of all operations."""
    simulate: Callable[[Schedule], Outcome]


def _broker(schedule: Schedule) -> Outcome:
    return simulate(schedule, engine="memory" if schedule.seed % _ON_SQLITE else "sqlite")


def _previews(schedule: Schedule) -> Outcome:
    return simulate_previews(schedule, kind="local" if schedule.seed % 2 else "cloud")


PARTS: Mapping[str, Part] = {
    "broker": Part(0.8, _broker),
    "platform": Part(0.1, simulate_platform),
    "previews": Part(0.1, _previews),
}
