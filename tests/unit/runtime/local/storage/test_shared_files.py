"""What machines share is there while it is used, and not for ever after."""

import os
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from sandyard.kit.clock import SystemClock
from sandyard.runtime.errors import EnvironmentInUseError
from sandyard.runtime.local.records.run_folder import LocalRunFolder
from sandyard.runtime.local.root_filesystems.store import RootFilesystems
from sandyard.runtime.local.server.enforcement import Enforcement
from sandyard.runtime.local.server.options import LocalOptions
from sandyard.runtime.local.server.specs import Specs
from sandyard.runtime.local.storage.shared_files import note_use, remove_unused
from sandyard.runtime.model import Ended, Kind, Limits, MachineSpec, RunId
from sandyard.runtime.records.disk_reserve import DiskReserve
from sandyard.runtime.records.run_folder import RunFolders
from sandyard.runtime.store.archives import ArchiveFolder
from tests.support.runtime.root_file_systems import member, tar

_WEEK_SEC = 7 * 24 * 3600
_LIMITS = Limits(cpu=1, memory_bytes=1, processes=1, storage_bytes=1, max_running_sec=1)


def add_run(folder: Path, kind: Kind = "sandbox", **changes: Any) -> LocalRunFolder:
    """A machine as it is recorded from its start on."""
    run_id = RunId(kind, "box", "1")
    snapshots, reserve = ArchiveFolder(folder / "snapshots"), DiskReserve(folder)
    specs = Specs(folder, snapshots, SystemClock(), reserve)
    spec = specs.make(run_id, MachineSpec(_LIMITS, 60), LocalOptions(), Enforcement())
    run = LocalRunFolder(RunFolders(folder).path_of(run_id))
    run.path.mkdir(parents=True)
    run.write_spec(replace(spec, **changes))
    return run


def made(folder: Path) -> dict[str, Path]:
    shared = {name: folder / name / "made" for name in ("skeletons", "blanks", "ca")}
    (shared["skeletons"] / "etc").mkdir(parents=True)
    for name in ("blanks", "ca"):
        shared[name].parent.mkdir()
        shared[name].touch()
    return shared


def test_what_nobody_has_used_for_a_week_is_removed(tmp_path: Path) -> None:
    shared = made(tmp_path)
    for path in shared.values():
        note_use(path, now=time.time())
    remove_unused(tmp_path, now=time.time() + _WEEK_SEC - 60)
    assert all(path.exists() for path in shared.values())
    remove_unused(tmp_path, now=time.time() + _WEEK_SEC + 60)
    assert not any(path.exists() for path in shared.values())


def test_what_is_used_again_stays(tmp_path: Path) -> None:
    path = made(tmp_path)["skeletons"]
    os.utime(path, (0, 0))
    note_use(path, now=time.time())
    remove_unused(tmp_path, now=time.time() + 60)
    assert path.exists()


@pytest.mark.parametrize("kind", ["sandbox", "preview", "warm"])
def test_what_a_machine_has_stays_until_its_end(tmp_path: Path, kind: Kind) -> None:
    shared = made(tmp_path)
    run = add_run(tmp_path, kind, base_files=str(shared["skeletons"]), ca_file=str(shared["ca"]))
    later = time.time() + _WEEK_SEC + 60
    remove_unused(tmp_path, now=later)
    assert shared["skeletons"].exists()
    assert shared["ca"].exists()
    run.write_ended(Ended(RunId(kind, "box", "1"), "stopped", ended_at=later))
    remove_unused(tmp_path, now=later)
    assert not shared["skeletons"].exists()
    assert not shared["ca"].exists()


def test_a_broken_record_keeps_all_and_stops_nobody(tmp_path: Path) -> None:
    """What its machine uses is unknown; the node's other sandboxes still start."""
    shared = made(tmp_path)
    (add_run(tmp_path).path / "spec.json").write_text("{")
    remove_unused(tmp_path, now=time.time() + _WEEK_SEC + 60)
    assert all(path.exists() for path in shared.values())


def test_an_environment_that_a_warm_machine_has_is_not_removed(tmp_path: Path) -> None:
    environments = RootFilesystems(tmp_path / "runtime")
    (tmp_path / "root.tar").write_bytes(tar(member("bin/sh", b"a shell")))
    environment = environments.add("debian", tmp_path / "root.tar", now=1.0)
    add_run(tmp_path / "runtime", "warm", root=str(environments.root_of(environment)))
    with pytest.raises(EnvironmentInUseError):
        environments.remove("debian")
