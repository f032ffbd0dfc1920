"""Control groups, in folders that hold the files which the kernel would show there."""

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from sandyard.runtime.local.limits.cgroups import Cgroup, prepare_root
from sandyard.runtime.model import Limits

LIMITS = Limits(cpu=1.5, memory_bytes=512 << 20, processes=128, storage_bytes=1, max_running_sec=60)
FILES = {
    "memory.max": "max",
    "memory.swap.max": "max",
    "memory.oom.group": "0",
    "memory.current": "123456",
    "memory.events": "low 0\nmax 3\noom 1\noom_kill 0\n",
    "pids.max": "max",
    "pids.current": "7",
    "cpu.max": "max 100000",
    "cpu.stat": "usage_usec 2500000\nuser_usec 1\n",
    "cgroup.procs": "",
    "cgroup.kill": "",
}


@pytest.fixture
def root(tmp_path: Path) -> Path:
    (tmp_path / "cgroup.controllers").write_text("cpuset cpu io memory pids\n")
    (tmp_path / "cgroup.subtree_control").write_text("")
    return tmp_path


def kernel_makes(cgroup: Cgroup) -> None:
    cgroup.path.mkdir()
    for name, content in FILES.items():
        (cgroup.path / name).write_text(content)


def kernel_removes(*, busy: int) -> Callable[[Path], None]:
    """Removes a group, after it was busy so often."""
    calls = iter(range(busy))

    def remove(path: Path) -> None:
        if next(calls, None) is not None:
            raise OSError(16, "busy")
        shutil.rmtree(path)

    return remove


def test_what_the_root_lacks_is_told(root: Path) -> None:
    (root / "cgroup.controllers").write_text("cpuset io pids\n")
    with pytest.raises(OSError, match="no cpu and no memory controller"):
        prepare_root(root)
    with pytest.raises(FileNotFoundError):
        prepare_root(root / "missing")


def test_the_controllers_are_given_to_the_groups_below(root: Path) -> None:
    prepare_root(root)
    assert (root / "cgroup.subtree_control").read_text() == "+cpu +memory +pids"
    (root / "cgroup.subtree_control").write_text("memory cpu pids")
    prepare_root(root)
    assert (root / "cgroup.subtree_control").read_text() == "memory cpu pids"


def test_a_group_has_all_limits_and_is_found_again(root: Path, tmp_path: Path) -> None:
    cgroup = Cgroup(root, tmp_path / "run")
    kernel_makes(cgroup)
    cgroup.create(LIMITS, processes_of_ours=3)
    written = {name: (cgroup.path / name).read_text() for name in FILES}
    assert written["memory.max"] == str(512 << 20)
    assert written["memory.swap.max"][0] == "0"
    assert written["memory.oom.group"] == "1"
    assert written["pids.max"] == "131"
    assert written["cpu.max"] == "150000 100000"
    cgroup.add(4711)
    assert (cgroup.path / "cgroup.procs").read_text() == "4711"
    again = Cgroup(root, tmp_path / "run")
    assert (again.memory_bytes(), again.processes(), again.cpu_seconds()) == (123456, 7, 2.5)
    assert Cgroup(root, tmp_path / "other").path != again.path


def test_a_limit_that_cannot_be_set_is_an_error(root: Path, tmp_path: Path) -> None:
    cgroup = Cgroup(root, tmp_path / "run")
    kernel_makes(cgroup)
    (cgroup.path / "memory.max").unlink()
    with pytest.raises(OSError, match=r"memory\.max"):
        cgroup.create(LIMITS, processes_of_ours=3)


def test_only_a_kill_for_memory_counts_as_out_of_memory(root: Path, tmp_path: Path) -> None:
    cgroup = Cgroup(root, tmp_path / "run")
    kernel_makes(cgroup)
    assert not cgroup.was_out_of_memory()
    (cgroup.path / "memory.events").write_text("oom 2\noom_kill 1\n")
    assert cgroup.was_out_of_memory()


def test_it_is_removed_with_what_is_left_in_it(root: Path, tmp_path: Path) -> None:
    cgroup = Cgroup(root, tmp_path / "run", remove=kernel_removes(busy=2))
    cgroup.remove()  # there is none
    kernel_makes(cgroup)
    cgroup.remove()
    assert not cgroup.path.exists()
