"""What is read of processes, against processes that are known."""

import os
import subprocess
import sys
import time
from collections.abc import Iterator

import pytest

from sandyard.runtime.local.host import processes
from sandyard.runtime.local.limits.memory import memory

_FAMILY = """
import os, time
held = bytearray(b"x" * (40 << 20))
if os.fork() == 0 and os.fork() == 0:
    pass
until = time.process_time() + 0.3
while time.process_time() < until:
    pass
os.write(1, b"r")
time.sleep(60)
"""


@pytest.fixture
def family() -> Iterator["subprocess.Popen[str]"]:
    with subprocess.Popen(
        [sys.executable, "-c", _FAMILY], stdout=subprocess.PIPE, text=True
    ) as top:
        assert top.stdout is not None
        assert top.stdout.read(3) == "rrr"
        yield top
        processes.kill_descendants(top.pid)
        top.kill()


def test_a_family_is_found_and_measured(family: "subprocess.Popen[str]") -> None:
    below = processes.descendants(family.pid)
    assert len(below) == 2
    assert family.pid in processes.descendants(os.getpid())
    members = [family.pid, *below]
    assert 0.8 < processes.cpu_seconds(members) < 10
    assert processes.resident_bytes(members) >= 3 * 40 << 20


def test_pages_that_several_share_are_counted_once(family: "subprocess.Popen[str]") -> None:
    members = [family.pid, *processes.descendants(family.pid)]
    assert 40 << 20 < memory(members).held < 80 << 20


def test_an_identity_ends_with_its_process(family: "subprocess.Popen[str]") -> None:
    identity = processes.identity(family.pid)
    time.sleep(0.05)
    assert identity == processes.identity(family.pid)
    assert identity != processes.identity(os.getpid())
    below = processes.descendants(family.pid)
    assert processes.kill_descendants(family.pid)
    assert [pid for pid in below if processes.identity(pid)] == []
    family.kill()
    while processes.identity(family.pid):  # also before anybody has waited for it
        time.sleep(0.01)
    assert processes.descendants(1 << 30) == []
    assert processes.cpu_seconds([1 << 30]) == 0
