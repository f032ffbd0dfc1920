"""The pool's history: one sample a minute, rates and time to exhaustion. No I/O."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from statistics import correlation, linear_regression

from sandyard.broker.pool.model import Status

MINUTE_SEC = 60
KEPT_SEC = 24 * 3600
RATE_SEC = 15 * 60
"""Rates cover this long a period, up to now."""
_FEWEST = 3
"""With fewer samples there is no forecast."""
_STEADY = 0.5
"""How much of the samples' variance a line must explain (R²) to be continued."""
_FURTHEST_SEC = 7 * 24 * 3600
"""There is no forecast beyond this."""


@dataclass(frozen=True, slots=True)
class PoolSample:
    """The pool in one minute. Data, not state: it has no events."""

    at: int
    """The start of the minute, in Unix seconds."""
    counts: Mapping[Status, int]
    waiting: int
    """Tickets waiting for a sandbox."""
    leases: int = 0
    """Leases that began in the previous minute."""

    @property
    def available(self) -> int:
        return self.counts.get(Status.AVAILABLE, 0)


@dataclass(frozen=True, slots=True)
class Outlook:
    """How fast the pool is used, and how long it lasts at this rate."""

    leases_per_minute: float | None
    """None while there are no samples."""
    exhausted_in_sec: int | None
    """None if the pool does not shrink steadily, or lasts for more than a week."""


def minute_of(now: float) -> int:
    return int(now) - int(now) % MINUTE_SEC


def outlook(samples: Sequence[PoolSample], *, available: int, now: int) -> Outlook:
    """From the samples of the last quarter of an hour, oldest first, and the sandboxes available
    now."""
    recent = [each for each in samples if each.at > now - RATE_SEC]
    if not recent:
        return Outlook(None, None)
    rate = sum(each.leases for each in recent) / len(recent)
    return Outlook(rate, _exhausted_in(recent, available))


def _exhausted_in(samples: Sequence[PoolSample], available: int) -> int | None:
    if available == 0:
        return 0
    slope = _steady_slope([(each.at, each.available) for each in samples])
    if slope is None or slope >= 0:
        return None
    seconds = available / -slope
    return round(seconds) if seconds <= _FURTHEST_SEC else None


def _steady_slope(points: Sequence[tuple[int, int]]) -> float | None:
    """Slope of the line through the points, by least squares; None if they are far from it."""
    times, values = [at for at, _ in points], [value for _, value in points]
    if len(points) < _FEWEST or len(set(values)) == 1:
        return None
    is_steady = correlation(times, values) ** 2 >= _STEADY
    return linear_regression(times, values).slope if is_steady else None


def in_steps(samples: Sequence[PoolSample], step_sec: int) -> Sequence[PoolSample]:
    """One sample per step: its last counts, and the sum of its leases. The samples are in order; a
    step without samples is left out."""
    steps: dict[int, PoolSample] = {}
    for each in samples:
        at = each.at - each.at % step_sec
        before = steps[at].leases if at in steps else 0
        steps[at] = replace(each, at=at, leases=before + each.leases)
    return list(steps.values())
