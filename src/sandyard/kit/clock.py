"""The time, as something that is passed in."""

import time
from datetime import UTC, datetime
from typing import Protocol


class Clock(Protocol):
    def now(self) -> float:
        """Unix time in seconds."""
        ...


class SystemClock:
    def now(self) -> float:
        return time.time()


def rfc3339(at: float) -> str:
    """As `2024-01-15T10:30:00Z`, which sorts as the times follow each other."""
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(at))


def utc_time(at: float) -> datetime:
    """The same instant as a `datetime` that knows its zone."""
    return datetime.fromtimestamp(at, UTC)
