"""A rate is kept to the reading, by a clock that only sleep moves."""

import pytest

from sandyard.telemetry.fleet.stalls import Pace
from tests.clocks import ManualClock


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
