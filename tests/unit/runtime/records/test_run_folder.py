"""Records of runs: written whole, read by later code, found by kind."""

import json
from pathlib import Path

from sandyard.runtime.model import Ended, Limits, RunId, Running, Snapshot
from sandyard.runtime.records.recorded_run import begun_record, failure_record, running_record
from sandyard.runtime.records.run_folder import RunFolder, RunFolders

RUN_ID = RunId("sandbox", "box", "1")
RUNNING = Running(RUN_ID, 8080, started_at=10.5, deadline_at=70.5)
LIMITS = Limits(cpu=1, memory_bytes=2, processes=3, storage_bytes=4, max_running_sec=5)
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
RECORDS_ON_DISK = {
    "running": {
        "owner": OWNER,
        "port": 8080,
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


def test_records_of_earlier_releases_are_read(tmp_path: Path) -> None:
    for name, record in RECORDS_ON_DISK.items():
        (tmp_path / f"{name}.json").write_text(json.dumps(record))
    assert RunFolder(tmp_path).running() == RUNNING
    assert RunFolder(tmp_path).ended() == ENDED


def test_records_are_read_as_they_were_written(tmp_path: Path) -> None:
    folder = RunFolder(tmp_path / "run")
    assert folder.begun_at() is None
    assert folder.running() is None
    folder.path.mkdir()
    folder.write("begun", begun_record(LIMITS, 10.5))
    folder.write("launched", {"at": 11.5})
    folder.write("running", running_record(RUNNING))
    folder.write_ended(ENDED)
    folder.write("failure", failure_record("NOT_LISTENING", "It did not listen.", 12.5))
    assert folder.begun_at() == 10.5
    assert folder.limits() == LIMITS
    assert folder.launched_at() == 11.5
    assert (folder.running(), folder.ended()) == (RUNNING, ENDED)
    assert folder.failure() == ("NOT_LISTENING", "It did not listen.", 12.5)


def test_an_end_with_its_snapshot_is_read_as_it_was_written(tmp_path: Path) -> None:
    folder = RunFolder(tmp_path)
    ended = Ended(RUN_ID, "stopped", ended_at=1.5, snapshot=Snapshot("s", 2, 3.5))
    folder.write_ended(ended, final=False)
    assert folder.ended() is None
    assert folder.ended(final=False) == ended


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
