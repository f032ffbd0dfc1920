"""Builds on the disk, which all processes of a node share."""

import time
from pathlib import Path

from sandyard.e2b_api.builds.records import Build, BuildFolder, BuildLog, BuildRequest
from sandyard.e2b_api.templates.finder import TemplateName

ID = "00000000-0000-0000-0000-000000000001"


def new_build() -> Build:
    wanted = BuildRequest(TemplateName("mine"), ["default"], 1, 0.5)
    return Build(ID, "tpl-a", "ann", wanted, asked_at=time.time(), status="building")


def begin(folder: BuildFolder, build: Build) -> BuildLog:
    folder.write(build)
    log = folder.open_log(build)
    assert log is not None
    return log


def test_every_worker_knows_the_builds_of_all_and_one_runs_each(tmp_path: Path) -> None:
    one, other = BuildFolder(tmp_path), BuildFolder(tmp_path)
    build = new_build()
    log = begin(one, build)
    assert other.find("ann", ID) == build
    assert other.list("ann") == [build]
    assert other.find("bob", ID) is None
    assert other.open_log(build) is None, "it runs already"
    assert log.append({"message": "step 1"})
    assert [each["message"] for each in other.entries(build)] == ["step 1"]
    log.close()


def test_a_build_whose_worker_was_killed_has_failed(tmp_path: Path) -> None:
    folder, build = BuildFolder(tmp_path), new_build()
    log = begin(folder, build)
    log.close()  # as the kernel does when a process ends
    found = BuildFolder(tmp_path).find("ann", ID)
    assert found is not None
    assert found.status == "error"
    assert found.reason == {"message": "The server stopped during the build.", "step": "base"}
