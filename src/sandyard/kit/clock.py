"""The time, as something that is passed in."""

import time
from typing import Protocol


class Clock(Protocol):
    def now(self) -> float:
        """Unix time in seconds."""
        ...


class SystemClock:
    def now(self) -> float:
        return time.time()
