"""Records of runs: written whole, read by later code, found by kind."""

import json
from pathlib import Path

from sandyard.runtime.model import Ended, RunId, Running, Snapshot, Starting, Stopping
from sandyard.runtime.records import RunFolder, RunFolders

RUN_ID = RunId("sandbox", "box", "1")
RUNNING = Running(RUN_ID, "http://127.0.0.1:8080", started_at=10.5, deadline_at=70.5)
ENDED = Ended(
    RUN_ID,
    "exited",
    ended_at=20.5,
    started_at=10.5,
    exit_code=3,
    message="It exited.",
    snapshot_error="the disk is full",
)
OWNER = {"kind": "sandbox", "id": "box", "attempt": "1"}
# As the first version wrote them; a supervisor of that version may still run.
FIRST_VERSION = {
    "running": {
        "owner": OWNER,
        "url": "http://127.0.0.1:8080",
        "started_at": 10.5,
        "deadline_at": 70.5,
    },
    "ended": {
        "owner": OWNER,
        "reason": "exited",
        "ended_at": 20.5,
        "started_at": 10.5,
        "exit_code": 3,
        "error_code": None,
        "message": "It exited.",
        "snapshot": None,
        "snapshot_trouble": "the disk is full",
    },
}


def test_records_of_the_first_version_are_read(tmp_path: Path) -> None:
    for name, record in FIRST_VERSION.items():
        (tmp_path / f"{name}.json").write_text(json.dumps(record))
    assert RunFolder(tmp_path).running() == RUNNING
    assert RunFolder(tmp_path).ended() == ENDED


def test_records_are_written_as_in_the_first_version(tmp_path: Path) -> None:
    folder = RunFolder(tmp_path)
    folder.write_running(RUNNING)
    folder.write_ended(ENDED)
    written = {name: json.loads((tmp_path / f"{name}.json").read_text()) for name in FIRST_VERSION}
    assert written == FIRST_VERSION


def test_an_end_with_its_snapshot_is_read_as_it_was_written(tmp_path: Path) -> None:
    folder = RunFolder(tmp_path)
    ended = Ended(RUN_ID, "stopped", ended_at=1.5, snapshot=Snapshot("s", 2, 3.5))
    folder.write_ended(ended, final=False)
    assert folder.ended() is None
    assert folder.ended(final=False) == ended


def test_a_moved_deadline_is_part_of_what_runs(tmp_path: Path) -> None:
    folder = RunFolder(tmp_path)
    folder.write_running(RUNNING)
    folder.write("deadline", {"deadline_at": 99.5})
    running = folder.running()
    assert running is not None
    assert running.deadline_at == 99.5


def test_what_has_run_and_not_ended_is_stopping(tmp_path: Path) -> None:
    folder = RunFolder(tmp_path)
    assert isinstance(folder.starting_or_stopping(RUN_ID), Starting)
    folder.write_running(RUNNING)
    assert isinstance(folder.starting_or_stopping(RUN_ID), Stopping)


def test_a_request_to_stop_stays(tmp_path: Path) -> None:
    assert not RunFolder(tmp_path).stop_is_requested()
    RunFolder(tmp_path).request_stop()
    assert RunFolder(tmp_path).stop_is_requested()


def test_the_lock_has_one_holder(tmp_path: Path) -> None:
    folder = RunFolder(tmp_path)
    with folder.lock() as first, folder.lock() as second:
        assert first is not None
        assert second is None
    with folder.lock() as third:
        assert third is not None


def test_folders_are_listed_by_kind_and_removed_with_the_last_attempt(tmp_path: Path) -> None:
    folders = RunFolders(tmp_path)
    second, preview = RunId("sandbox", "box", "2"), RunId("preview", "project", "a")
    for run_id in (second, RUN_ID, preview):
        folders.path_of(run_id).mkdir(parents=True)
    assert folders.path_of(RUN_ID) == tmp_path / "held/sandbox/box/1"
    assert folders.run_ids("sandbox") == [RUN_ID, second]
    assert folders.run_ids("preview") == [preview]
    folders.remove(RUN_ID)
    assert folders.run_ids("sandbox") == [second]
    folders.remove(second)
    folders.remove(second)
    assert not (tmp_path / "held/sandbox/box").exists()
