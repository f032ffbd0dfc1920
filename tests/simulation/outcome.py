"""What became of a run of sandboxes or previews."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from sandyard.kit.changes.events import LoggedEvent
from tests.histories.evidence import LifeEvidence, save
from tests.histories.life_calls import LifeHistory
from tests.simulation.schedule import Schedule


@dataclass(frozen=True, slots=True)
class LifeOutcome:
    schedule: Schedule
    operations: int
    history: LifeHistory
    log: Sequence[LoggedEvent]
    faults: Mapping[str, int]
    """How often each has happened."""
    kills: int
    problems: list[str]
    """Everything that cannot be, in sentences."""

    def count(self, kind: str) -> int:
        """How often an event tells this."""
        return sum(each.event.kind == kind for each in self.log)

    def save(self, folder: Path) -> None:
        save(LifeEvidence(self.history, self.log), folder)
        (folder / "problems.txt").write_text("\n".join([str(self.schedule), *self.problems]))
