"""How long a board goes on."""

from random import Random

import pytest

from sandyard.tools.fleet.wire import (
    NoProgressError,
    Pace,
    StallTimeout,
    Trouble,
    wait_before_retry,
)
from tests.support.clocks import ManualClock

# StallTimeout


def test_waits_double_up_to_a_bound_and_differ() -> None:
    rng = Random(1)
    waits = [[wait_before_retry(failures, rng) for _ in range(50)] for failures in range(12)]
    assert all(0.025 <= wait <= 0.05 for wait in waits[0])
    assert all(0.05 <= wait <= 0.1 for wait in waits[1])
    assert all(1 <= wait <= 2 for wait in waits[-1])
    assert all(len(set(each)) == 50 for each in waits)


async def test_patience_ends_when_nobody_gets_anywhere() -> None:
    stall_timeout = StallTimeout(0.1, rng=Random(1))
    stall_timeout.last_failure = "503"
    trouble = Trouble(stall_timeout)

    async def go_on() -> None:
        for _ in range(20):
            await trouble.wait()

    with pytest.raises(NoProgressError, match="503"):
        await go_on()


async def test_another_boards_progress_keeps_patience_up() -> None:
    stall_timeout = StallTimeout(0.1, rng=Random(1))
    stuck, lucky = Trouble(stall_timeout), Trouble(stall_timeout)
    for _ in range(3):
        await stuck.wait()
        lucky.over()
    await stuck.wait()


class Sleeper:
    def __init__(self) -> None:
        self.clock = ManualClock(1000)

    async def sleep(self, seconds: float) -> None:
        assert seconds >= 0
        self.clock.advance(seconds)

    def pace(self, readings_per_sec: float) -> Pace:
        return Pace(readings_per_sec, now=self.clock.now, sleep=self.sleep)


@pytest.mark.parametrize(("rate", "batch"), [(80, 5), (80, 1), (0.5, 3), (1e6, 1000)])
async def test_each_batch_starts_when_those_before_it_are_due(rate: float, batch: int) -> None:
    sleeper = Sleeper()
    pace = sleeper.pace(rate)
    for number in range(20):
        await pace.wait(batch)
        assert sleeper.clock.now() - 1000 == pytest.approx(number * batch / rate)


async def test_what_was_not_sent_in_time_is_not_made_up_for() -> None:
    sleeper = Sleeper()
    pace = sleeper.pace(10)
    await pace.wait(5)
    sleeper.clock.advance(60)  # a slow answer
    starts = []
    for _ in range(3):
        await pace.wait(5)
        starts.append(sleeper.clock.now() - 1060)
    assert starts == pytest.approx([0, 0.5, 1])


async def test_without_a_rate_nobody_waits() -> None:
    sleeper = Sleeper()
    for _ in range(3):
        await sleeper.pace(0).wait(1000)
    assert sleeper.clock.now() == 1000
