"""A failure is told by the smallest schedule that is found to fail too."""

import random
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from tests.simulation.failures import require_none
from tests.simulation.network import STORM
from tests.simulation.schedule import Schedule, shrink


def test_only_what_makes_it_fail_is_left() -> None:
    def fails(schedule: Schedule) -> bool:
        return schedule.operations >= 70 and schedule.has("late") and schedule.has("kills")

    smallest = shrink(Schedule(5, 1000), fails)
    assert smallest.seed == 5
    assert 70 <= smallest.operations < 90
    assert smallest.troubles == {"late", "kills"}
    assert str(smallest) == f"seed 5, {smallest.operations} operations, troubles: kills, late"


def test_faults_that_a_schedule_lacks_do_not_happen() -> None:
    allowed = Schedule(1, 1, frozenset({"late"})).allowed(STORM)
    assert (allowed.late, allowed.doubled, allowed.throttled) == (STORM.late, 0, 0)


@dataclass
class Failed:
    schedule: Schedule
    problems: list[str] = field(default_factory=lambda: ["two owners"])
    faults: dict[str, int] = field(default_factory=dict)
    operations: int = 0
    kills: int = 0

    def save(self, folder: Path) -> None:
        (folder / "history").write_text(str(random.getrandbits(1)))


def test_a_failure_tells_its_seed_a_smaller_schedule_and_where_its_history_is(
    tmp_path: Path,
) -> None:
    with pytest.raises(AssertionError) as failure:
        require_none(Failed(Schedule(8, 100)), Failed, tmp_path)
    told = str(failure.value)
    assert told.startswith("seed 8, 100 operations, troubles: answer_lost,")
    assert "fails too: seed 8, 1 operations, troubles: none" in told
    assert str(tmp_path) in told
    assert (tmp_path / "history").exists()
