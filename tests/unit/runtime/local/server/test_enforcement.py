"""Which means hold the limits, and what is said of those that are missing."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from sandyard.runtime.errors import LimitsMissingError
from sandyard.runtime.local.server.enforcement import Enforcement, find_enforcement
from sandyard.runtime.local.server.options import LocalOptions
from sandyard.runtime.local.storage.volumes import file_count, image_bytes

LIMITED = ("memory", "cpu", "processes", "disk")


def test_the_strongest_is_taken_and_leaves_nothing(tmp_path: Path) -> None:
    means = find_enforcement(LocalOptions(), tmp_path, 1.0)
    assert means.volume == ("image" if os.geteuid() == 0 else "folder")
    assert not means.has_cgroups
    assert list(tmp_path.iterdir()) == []
    assert str(tmp_path) not in Path("/proc/mounts").read_text()


@pytest.mark.parametrize("isolation", ["bubblewrap", "none"])
def test_a_folder_can_be_asked_for(tmp_path: Path, isolation: str) -> None:
    policy = LocalOptions(
        isolation="none" if isolation == "none" else "bubblewrap", volume="folder"
    )
    assert find_enforcement(policy, tmp_path, 1.0).volume == "folder"


def test_a_root_of_control_groups_that_is_none_is_told(tmp_path: Path) -> None:
    with pytest.raises(LimitsMissingError, match="SANDBOX_CGROUP_ROOT can't be used"):
        find_enforcement(LocalOptions(cgroup_root=tmp_path / "none"), tmp_path, 1.0)
    (tmp_path / "cgroup.controllers").write_text("cpu memory pids")
    (tmp_path / "cgroup.subtree_control").write_text("cpu memory pids")
    assert find_enforcement(LocalOptions(cgroup_root=tmp_path), tmp_path, 1.0).has_cgroups


def test_each_limit_is_called_promised_or_advisory() -> None:
    strong = Enforcement(volume="image", has_cgroups=True).describe()
    assert {name: strong[name].split(",")[0] for name in LIMITED} == dict.fromkeys(
        LIMITED, "promised"
    )
    weak = Enforcement(volume="folder", no_image="the server is not root").describe()
    assert {name: weak[name].split(",")[0] for name in LIMITED} == {
        "memory": "advisory",
        "cpu": "promised",
        "processes": "promised",
        "disk": "advisory",
    }
    assert "SANDBOX_CGROUP_ROOT" in weak["memory"]
    assert "the server is not root" in weak["disk"]
    assert "promised" not in " ".join(Enforcement(isolation="none").describe().values())


def test_a_server_that_cannot_fix_the_oom_score_says_so() -> None:
    assert "CAP_SYS_RESOURCE" in Enforcement(fixes_oom_score=False).describe()["memory"]
    assert "CAP_SYS_RESOURCE" not in Enforcement().describe()["memory"]
    assert Enforcement("gvisor", fixes_oom_score=False).warnings() == ()


def test_sudo_is_not_promised_where_it_does_not_work() -> None:
    assert Enforcement(has_root=True).describe()["root"] == "available, with sudo"
    of_gvisor = Enforcement(isolation="gvisor", has_root=True).describe()
    assert of_gvisor["root"] == "available, by the API; no sudo inside"


@pytest.mark.parametrize("size", [1 << 20, 40 << 20, 2 << 30, 1000 << 30])
def test_an_image_has_room_for_what_may_be_stored(size: int) -> None:
    assert size < image_bytes(size) - 256 * file_count(size) < size * 1.05 + (5 << 20)
    assert file_count(size) >= 1024


_CHECK_TWICE = """
import asyncio, sys
from pathlib import Path
from sandyard.kit.clock import SystemClock
from sandyard.runtime.local.server.machines import LocalMachines
from sandyard.runtime.local.server.options import LocalOptions

async def check() -> None:
    machines = LocalMachines(Path(sys.argv[1]), LocalOptions(isolation="none"), SystemClock())
    await machines.check()
    await machines.check()

asyncio.run(check())
"""


def test_a_server_without_the_capability_warns_once(tmp_path: Path) -> None:
    command = [sys.executable, "-c", _CHECK_TWICE, str(tmp_path / "runtime")]
    if os.geteuid() == 0:
        without = ["--bounding-set=-sys_resource", "--inh-caps=-sys_resource"]
        command = ["setpriv", *without, *command]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert done.stderr.count("CAP_SYS_RESOURCE") == 1
