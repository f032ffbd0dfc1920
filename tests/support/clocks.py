"""Clocks that move when told to."""

import time


class ManualClock:
    def __init__(self, now: float) -> None:
        self._now = now

    def now(self) -> float:
        return self._now

    def advance(self, seconds: float) -> None:
        self._now += seconds


class RunningClock(ManualClock):
    """The system's time, moved ahead by as much as it was told to."""

    def __init__(self) -> None:
        super().__init__(0)

    def now(self) -> float:
        return time.time() + self._now
