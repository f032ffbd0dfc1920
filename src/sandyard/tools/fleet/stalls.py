"""How fast boards send, how long they wait after a failure, and when they give up."""

import asyncio
import time
from collections.abc import Awaitable, Callable
from random import Random

from sandyard.kit.errors import SandyardError

_FIRST_WAIT_SEC = 0.05
_LONGEST_WAIT_SEC = 2.0
_LONGEST_OBEYED_SEC = 10.0


class NoProgressError(SandyardError):
    """The server gave no useful answer for too long. Look at its log, or raise --stall-timeout."""

    code = "NO_PROGRESS"


class StallTimeout:
    """Shared by the fleet: it expires when no board has made progress for this long."""

    def __init__(self, seconds: float, *, rng: Random) -> None:
        self.seconds = seconds
        self.rng = rng
        self.last_progress_at = time.monotonic()
        self.last_failure = ""

    def progress(self) -> None:
        self.last_progress_at = time.monotonic()


class Trouble:
    """One board's consecutive failures."""

    def __init__(self, stall_timeout: StallTimeout) -> None:
        self._stall_timeout = stall_timeout
        self._failures = 0
        self._since = 0.0

    def over(self) -> None:
        self._failures = 0
        self._stall_timeout.progress()

    async def wait(self, *, retry_after_sec: float = 0) -> None:
        """Wait before the next attempt, longer each time; eventually raises NoProgressError."""
        now = time.monotonic()
        if not self._failures:
            self._since = now
        stuck_sec = now - max(self._since, self._stall_timeout.last_progress_at)
        if stuck_sec > self._stall_timeout.seconds:
            raise NoProgressError(
                f"No progress for {stuck_sec:.0f} seconds, the last failure was: "
                f"{self._stall_timeout.last_failure}. Check the server's log."
            )
        wait_sec = wait_before_retry(self._failures, self._stall_timeout.rng)
        self._failures += 1
        await asyncio.sleep(max(wait_sec, min(retry_after_sec, _LONGEST_OBEYED_SEC)))


def wait_before_retry(failures: int, rng: Random) -> float:
    """Seconds: a random time between half and all of a delay that doubles up to a maximum."""
    longest = min(_LONGEST_WAIT_SEC, _FIRST_WAIT_SEC * 2 ** min(failures, 10))
    return rng.uniform(longest / 2, longest)


class Pace:
    """Limits the rate of readings; 0 is unlimited."""

    def __init__(
        self,
        readings_per_sec: float,
        *,
        now: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        """`now` and `sleep` are in seconds of one clock."""
        self._rate = readings_per_sec
        self._now = now
        self._sleep = sleep
        self._next_at = 0.0

    async def wait(self, readings: int) -> None:
        if not self._rate:
            return
        now = self._now()
        starts_at = max(now, self._next_at)
        self._next_at = starts_at + readings / self._rate
        await self._sleep(starts_at - now)
