"""Shares of what a sandbox may take."""

import pytest

from sandyard.platform.measurements.model import cpu_share, share
from sandyard.runtime.model import Sample


def sample(at: float, cpu_seconds: float) -> Sample:
    return Sample(at=at, cpu_seconds=cpu_seconds, memory_bytes=0, storage_bytes=0, processes=1)


@pytest.mark.parametrize(
    ("before", "now", "cpu", "percent"),
    [
        (None, sample(110, 5), 1, 50.0),
        (None, sample(110, 5), 2, 25.0),
        (None, sample(100.5, 2), 1, 100.0),
        (None, sample(100, 2), 1, 0.0),
        (sample(110, 5), sample(120, 8), 1, 30.0),
        (sample(110, 5), sample(120, 20), 1, 150.0),
        (sample(110, 5), sample(120, 4), 1, 0.0),
        (sample(110, 5), sample(110, 6), 1, 0.0),
        (sample(110, 5), sample(109, 6), 1, 0.0),
        (None, sample(99, 2), 1, 0.0),
        (None, sample(110, 10), 1, 100.0),
        (None, sample(110, 10.001), 1, 100.0),
        (None, sample(110, 9.999), 1, 99.99),
        (sample(110, 5), sample(120, 6), 3, 3.333),
        (sample(110, 5), sample(120, 6), 0.5, 20.0),
    ],
)
def test_the_share_of_its_processors(
    before: Sample | None, now: Sample, cpu: float, percent: float
) -> None:
    assert cpu_share(before, now, started_at=100, cpu=cpu) == percent


def test_the_share_of_nothing_is_nothing() -> None:
    assert (share(1, 4), share(1, 0), share(0, 4)) == (25.0, 0.0, 0.0)
    assert (share(1, 3), share(2, 3), share(5, 4)) == (33.333, 66.667, 125.0)
