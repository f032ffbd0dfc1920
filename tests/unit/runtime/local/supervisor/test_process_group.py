"""A signal reaches the group that an agent told of, if it is one that the agent started."""

import os
import signal
import subprocess
from typing import Any

import pytest

from sandyard.runtime.local.supervisor.process_groups import ProcessGroup

_TWO = ["sh", "-c", "sleep 60 & echo $!; wait"]


def leader() -> subprocess.Popen[str]:
    """A shell that leads a group, once its child is there too."""
    process = subprocess.Popen(_TWO, stdout=subprocess.PIPE, text=True, start_new_session=True)
    assert process.stdout is not None
    assert process.stdout.readline()
    return process


def test_all_of_the_group_are_reached() -> None:
    with leader() as process:
        group = ProcessGroup(process.pid, parents=(os.getpid(),))
        group.signal(signal.SIGKILL)
        assert process.stdout is not None
        assert process.stdout.read() == ""  # the child, too, has let go of it
    assert process.returncode == -signal.SIGKILL
    group.signal(signal.SIGKILL)
    group.close()
    group.signal(signal.SIGKILL)


def test_a_stranger_is_not_reached() -> None:
    with leader() as process:
        ProcessGroup(process.pid, parents=(1, None)).signal(signal.SIGKILL)
        assert process.poll() is None
        os.killpg(process.pid, signal.SIGTERM)
    assert process.returncode == -signal.SIGTERM


@pytest.mark.parametrize("told", [0, -1, 1, 2**40, "7", None])
def test_what_is_no_process_of_ours_is_nobody(told: Any) -> None:
    """0 would be one's own group, and -1 everybody."""
    ProcessGroup(told, parents=(os.getpid(),)).signal(signal.SIGKILL)


def test_one_that_has_ended_is_nobody() -> None:
    with subprocess.Popen(["true"]) as process:
        os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)
        ProcessGroup(process.pid, parents=(os.getpid(),)).signal(signal.SIGKILL)
    assert process.returncode == 0
