"""What is read of processes, against processes that are known; by /proc and by psutil alike."""

import os
import subprocess
import sys
import time
from collections.abc import Iterator
from types import ModuleType

import pytest

from sandyard.runtime.local.host import processes, processes_psutil
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


READERS = (processes, processes_psutil)


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


@pytest.mark.parametrize("reader", READERS)
def test_a_family_is_found_and_measured(
    reader: ModuleType, family: "subprocess.Popen[str]"
) -> None:
    below = reader.descendants(family.pid)
    assert len(below) == 2
    assert family.pid in reader.descendants(os.getpid())
    members = [family.pid, *below]
    assert 0.8 < reader.cpu_seconds(members) < 10
    assert reader.resident_bytes(members) >= 3 * 40 << 20


def test_pages_that_several_share_are_counted_once(family: "subprocess.Popen[str]") -> None:
    members = [family.pid, *processes.descendants(family.pid)]
    assert 40 << 20 < memory(members).held < 80 << 20


@pytest.mark.parametrize("reader", READERS)
def test_an_identity_ends_with_its_process(
    reader: ModuleType, family: "subprocess.Popen[str]"
) -> None:
    identity = reader.identity(family.pid)
    time.sleep(0.05)
    assert identity == reader.identity(family.pid)
    assert identity != reader.identity(os.getpid())
    below = reader.descendants(family.pid)
    assert processes.kill_descendants(family.pid)
    assert [pid for pid in below if reader.identity(pid)] == []
    family.kill()
    while reader.identity(family.pid):  # also before anybody has waited for it
        time.sleep(0.01)
    assert reader.descendants(1 << 30) == []
    assert reader.cpu_seconds([1 << 30]) == 0
