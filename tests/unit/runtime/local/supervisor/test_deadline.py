"""A deadline is held to the instant, by a clock that only sleep moves."""

from collections.abc import Callable
from pathlib import Path

import pytest

from sandyard.runtime.local.records.run_folder import LocalRunFolder
from sandyard.runtime.local.supervisor.supervisor import POLL_SEC, until_deadline
from sandyard.runtime.model import RunId, Up
from tests.support.clocks import ManualClock

START = 1_800_000_000.0


async def ended_after(
    folder: LocalRunFolder, meanwhile: Callable[[float], None] = lambda _: None
) -> float:
    """The seconds after which the wait is over; `meanwhile` gets them at each sleep."""
    clock = ManualClock(START)

    async def sleep(seconds: float) -> None:
        assert seconds > 0
        clock.advance(seconds)
        meanwhile(clock.now() - START)

    await until_deadline(folder, clock, sleep=sleep)
    return clock.now() - START


@pytest.fixture
def folder(tmp_path: Path) -> LocalRunFolder:
    found = LocalRunFolder(tmp_path)
    run_id = RunId("sandbox", "sbx-1", "1")
    found.write_up(Up(run_id, 8080, START, START + 7.3))
    return found


def moves(folder: LocalRunFolder, *, at: float, deadline: float) -> Callable[[float], None]:
    def move(passed: float) -> None:
        if passed == at:
            folder.write_deadline(START + deadline)

    return move


async def test_it_is_over_at_the_deadline(folder: LocalRunFolder) -> None:
    assert await ended_after(folder) == pytest.approx(7.3, abs=1e-6)


async def test_a_deadline_that_is_moved_later_holds(folder: LocalRunFolder) -> None:
    later = moves(folder, at=2.0, deadline=60.1)
    assert await ended_after(folder, later) == pytest.approx(60.1, abs=1e-6)


@pytest.mark.parametrize("deadline", [2.0, 2.1, 0.0])
async def test_one_that_is_moved_close_is_seen_within_a_poll(
    folder: LocalRunFolder, deadline: float
) -> None:
    earlier = moves(folder, at=2.0, deadline=deadline)
    ended = await ended_after(folder, earlier)
    assert max(2.0, deadline) <= ended + 1e-6 <= max(2.0, deadline) + POLL_SEC


async def test_it_is_noted_every_second_that_the_program_lives(folder: LocalRunFolder) -> None:
    seen = []

    def note(passed: float) -> None:
        beat = folder.path / "heartbeat"
        if beat.exists():
            seen.append(passed)
            beat.unlink()

    await ended_after(folder, note)
    assert seen == pytest.approx([0.25, 1.25, 2.25, 3.25, 4.25, 5.25, 6.25, 7.25])


async def test_what_does_not_run_has_no_deadline_to_wait_for(tmp_path: Path) -> None:
    assert await ended_after(LocalRunFolder(tmp_path)) == 0


async def test_a_deadline_that_cannot_be_read_for_a_while_is_no_end(folder: LocalRunFolder) -> None:
    """As when there is no descriptor left to read it by."""
    record, lost = folder.path / "up.json", folder.path / "lost"

    def lose(passed: float) -> None:
        if passed == 2.0:
            record.rename(lost)
            record.mkdir()
        elif passed == 5.0:
            record.rmdir()
            lost.rename(record)

    assert await ended_after(folder, lose) == pytest.approx(7.3, abs=1e-6)
