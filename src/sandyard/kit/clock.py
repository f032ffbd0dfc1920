"""The clock, as an injected dependency."""

import time
from datetime import UTC, datetime
from typing import Protocol


class Clock(Protocol):
    def now(self) -> float:
        """Unix time in seconds."""


class SystemClock:
    def now(self) -> float:
        return time.time()


def rfc3339(at: float) -> str:
    """Formatted as `2024-01-15T10:30:00Z`, which sorts chronologically."""
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(at))


def now_ms(clock: Clock) -> int:
    return int(clock.now() * 1000)


def rfc3339_from_ms(at_ms: int) -> str:
    """Like `rfc3339`; whole seconds."""
    return rfc3339(at_ms // 1000)


def ms_from_rfc3339(text: str) -> int:
    return round(datetime.fromisoformat(text).timestamp() * 1000)


def utc_time(at: float) -> datetime:
    return datetime.fromtimestamp(at, UTC)
