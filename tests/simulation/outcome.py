"""What became of a run of sandboxes or previews."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

import orjson

from sandyard.kit.changes.events import LoggedEvent
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
        self.history.save(folder)
        lines = (orjson.dumps(asdict(each)) for each in self.log)
        (folder / "events.jsonl").write_bytes(b"\n".join(lines))
        (folder / "problems.txt").write_text("\n".join([str(self.schedule), *self.problems]))
