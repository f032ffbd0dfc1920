"""How many processors a program may use."""

import os

import pytest

from sandyard.runtime.local.spawn import pinned


@pytest.mark.parametrize(
    ("cpu", "cores"), [(0.5, 1), (1, 1), (1.01, 1), (1.99, 1), (2, 2), (2.5, 2)]
)
def test_nobody_gets_more_processors_than_asked_for(cpu: float, cores: int) -> None:
    usable = os.sched_getaffinity(0)
    with pinned(cpu):
        assert len(os.sched_getaffinity(0)) == min(cores, len(usable))
    assert os.sched_getaffinity(0) == usable
