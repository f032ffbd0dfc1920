"""Limits the CPU that a supervisor spends on its machine's output.

A supervisor's CPU is not counted as its machine's. If programs flood their output, their pipes are
read more slowly, and they wait.
"""

import time
from collections.abc import Callable

_SHARE = 0.25
_BURST_SEC = 0.5


class OutputThrottle:
    """Measured by the CPU time of this whole process, since it was last within its share."""

    def __init__(
        self,
        used_sec: Callable[[], float] = time.process_time,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._used_sec = used_sec
        self._clock = clock
        self._since = clock(), used_sec()

    def pause_sec(self) -> float:
        """How long to pause reading; a burst is free."""
        now, used_sec = self._clock(), self._used_sec()
        at, used_before_sec = self._since
        owed_sec = (used_sec - used_before_sec) / _SHARE - (now - at)
        if owed_sec <= 0:
            self._since = now, used_sec
        return owed_sec if owed_sec > _BURST_SEC else 0.0
