"""Samples of a running sandbox, relative to its limits."""

from dataclasses import dataclass
from datetime import datetime

from sandyard.runtime.model import Sample


@dataclass(frozen=True, slots=True)
class Measurement:
    metric_id: str
    sandbox_id: str
    timestamp: datetime
    cpu_utilization: float
    memory_utilization: float
    storage_utilization: float


@dataclass(frozen=True, slots=True)
class MeasurementBucket:
    """Means over a period, and the number of samples in it."""

    start: datetime
    cpu_utilization: float
    memory_utilization: float
    storage_utilization: float
    count: int


def cpu_share(before: Sample | None, now: Sample, *, started_at: float, cpu: float) -> float:
    """Percent of its processors used since the previous sample, or since its start.

    The first sample includes the program's use before it listened, so the result is capped at all
    of them.
    """
    since_at, since_cpu = (before.at, before.cpu_seconds) if before else (started_at, 0.0)
    elapsed = now.at - since_at
    if elapsed <= 0:
        return 0.0
    percent = max(0.0, now.cpu_seconds - since_cpu) / elapsed / cpu * 100
    return round(percent if before else min(percent, 100.0), 3)


def share(part: float, whole: float) -> float:
    return round(part / whole * 100, 3) if whole else 0.0
