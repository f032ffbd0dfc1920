"""How many processors a program may use."""

import os
import subprocess

import pytest

from sandyard.runtime.local.spawn import pin


@pytest.mark.parametrize(
    ("cpu", "cores"), [(0.5, 1), (1, 1), (1.01, 1), (1.99, 1), (2, 2), (2.5, 2)]
)
def test_nobody_gets_more_processors_than_asked_for(cpu: float, cores: int) -> None:
    usable = os.sched_getaffinity(0)
    with subprocess.Popen(["sleep", "60"]) as process:
        pin([process.pid, 2**22 + 1], cpu)
        assert len(os.sched_getaffinity(process.pid)) == min(cores, len(usable))
        process.kill()
    assert os.sched_getaffinity(0) == usable
