"""What a restore refuses, and what it leaves behind: all of a backup, or nothing."""

import fcntl
import shutil
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import pytest

from sandyard.entrypoints.backup.archive import writing
from sandyard.entrypoints.backup.errors import (
    ArchiveInvalidError,
    BackupError,
    DataDirNotEmptyError,
)
from sandyard.entrypoints.backup.restoring import Restored, restore_backup
from sandyard.entrypoints.backup.writing import find_source, write_backup
from sandyard.entrypoints.server.data_dir import (
    DataDirInUseError,
    RestoreUnfinishedError,
    locked,
)
from sandyard.settings import load_settings


@contextmanager
def uncounted(_what: str, _total: int | None) -> Iterator[Callable[[int], None]]:
    yield lambda _: None


@pytest.fixture
def data(tmp_path: Path) -> Path:
    """A data dir with a bit of everything, and a run that goes on."""
    folder = tmp_path / "data"
    for name, content in {
        "node": "n1",
        "lock": "",
        "simulated-provider.json": "{}",
        "secrets/jwt_secret": "s",
        "secrets/jwt_secret.new": "draft",
        "outbox/1.eml": "a token",
        "outbox/.2.eml.new": "draft",
        "runtime/snapshots/sbx-1.snapshot": "files",
        "runtime/snapshots/sbx-2.new": "draft",
        "runtime/held/sandbox/sbx/1/running.json": "{}",
        "runtime/held/sandbox/sbx/1/supervisor.json": "{}",
        "runtime/held/sandbox/sbx/1/logs/00000001": "hello",
        "runtime/held/sandbox/sbx/1/workspace/node": "a program's",
        "runtime/templates/x.git/HEAD": "made again",
        "runtime-e2b/snapshots/1.json": "{}",
        "runtime-e2b/held/sandbox/sbx/1/sandbox.json": "{}",
        "a core dump": "x",
    }.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(content)
    with closing(sqlite3.connect(folder / "broker.db")) as database:
        database.execute("PRAGMA journal_mode=WAL")
        database.execute("CREATE TABLE schema_version (version_num TEXT)")
        database.execute("INSERT INTO schema_version VALUES ('0001')")
        database.commit()
    return folder


def back_up(data: Path, *, with_secrets: bool = True) -> Path:
    file = data.parent / "backup"
    source = find_source(load_settings(), data, with_secrets=with_secrets)
    write_backup(source, file, uncounted)
    return file


def restore(file: Path, to: Path, *, same_node: bool = False) -> Restored:
    return restore_backup(file, to, same_node=same_node, counting=uncounted)


def names(folder: Path) -> set[str]:
    return {path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file()}


OF_ANY_NODE = {
    "broker.db",
    "lock",
    "node",
    "simulated-provider.json",
    "runtime/snapshots/sbx-1.snapshot",
    "runtime-e2b/snapshots/1.json",
}
OF_ITS_NODE = {
    "runtime/held/sandbox/sbx/1/running.json",
    "runtime/held/sandbox/sbx/1/logs/00000001",
    "runtime-e2b/held/sandbox/sbx/1/sandbox.json",
}
SECRET = {"secrets/jwt_secret", "outbox/1.eml"}


def test_a_new_node_takes_over_everything_but_what_runs(data: Path, tmp_path: Path) -> None:
    restored = restore(back_up(data), tmp_path / "new")
    assert names(tmp_path / "new") == OF_ANY_NODE | SECRET
    assert (tmp_path / "new" / "node").read_text() == restored.node != "n1"


def test_a_restore_tells_how_far_it_is(data: Path, tmp_path: Path) -> None:
    file = back_up(data)
    on_progress: dict[tuple[str, int | None], list[int]] = {}

    @contextmanager
    def counting(what: str, total: int | None) -> Iterator[Callable[[int], None]]:
        yield on_progress.setdefault((what, total), []).append

    restore_backup(file, tmp_path / "new", same_node=False, counting=counting)
    size = file.stat().st_size
    assert list(on_progress) == [("check", size), ("restore", size)]
    for done in on_progress.values():
        assert done == sorted(done)
        assert done[-1] == size


def test_the_same_node_also_takes_over_what_runs(data: Path, tmp_path: Path) -> None:
    restored = restore(back_up(data), tmp_path / "new", same_node=True)
    assert restored.node == "n1"
    assert names(tmp_path / "new") == OF_ANY_NODE | SECRET | OF_ITS_NODE


def test_without_secrets_there_are_neither_keys_nor_mails(data: Path, tmp_path: Path) -> None:
    before = names(data)
    file = back_up(data, with_secrets=False)
    assert names(data) == before | {"backup.lock"}, "nothing else stays behind"
    assert [path.name for path in sorted(tmp_path.iterdir())] == ["backup", "data"]
    restore(file, tmp_path / "new")
    assert names(tmp_path / "new") == OF_ANY_NODE


def test_one_backup_at_a_time_and_what_a_killed_one_left_is_removed(
    data: Path, tmp_path: Path
) -> None:
    (data / "backup" / "secrets").mkdir(parents=True)
    (data / "backup" / "secrets" / "old").write_text("x")
    with (data / "backup.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        with pytest.raises(BackupError, match="Another backup"):
            back_up(data)
    file = back_up(data)
    assert not (data / "backup").exists()
    restore(file, tmp_path / "new")
    assert "secrets/old" not in names(tmp_path / "new")


def test_where_nothing_is_nothing_is_backed_up(tmp_path: Path) -> None:
    with pytest.raises(BackupError, match="nothing to back up"):
        find_source(load_settings(), tmp_path / "nowhere", with_secrets=True)


def test_a_data_dir_that_is_in_use_or_not_empty_is_refused(data: Path, tmp_path: Path) -> None:
    file = back_up(data)
    with locked(data), pytest.raises(DataDirInUseError):
        restore(file, data)
    with pytest.raises(DataDirNotEmptyError):
        restore(file, data)
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "notes.txt").write_text("mine")
    with pytest.raises(DataDirNotEmptyError, match=r"notes\.txt"):
        restore(file, tmp_path / "other")
    assert names(tmp_path / "other") == {"notes.txt"}


def test_an_empty_data_dir_will_do(data: Path, tmp_path: Path) -> None:
    (tmp_path / "new").mkdir()
    (tmp_path / "new" / "lock").touch()
    restore(back_up(data), tmp_path / "new")
    assert names(tmp_path / "new") == OF_ANY_NODE | SECRET


def test_a_damaged_file_touches_nothing(data: Path, tmp_path: Path) -> None:
    file = back_up(data)
    content = bytearray(file.read_bytes())
    middle = len(content) // 2
    content[middle : middle + 64] = bytes(each ^ 0xFF for each in content[middle : middle + 64])
    file.write_bytes(content)
    with pytest.raises(ArchiveInvalidError):
        restore(file, tmp_path / "new")
    assert not (tmp_path / "new").exists()


@pytest.mark.parametrize("name", ["lock", "restore/x", "authorized_keys", "runtime/templates/x"])
def test_what_does_not_belong_into_a_data_dir_is_refused(tmp_path: Path, name: str) -> None:
    (tmp_path / "x").write_text("x")
    with writing(tmp_path / "file", lambda _: None) as archive:
        archive.add(name, tmp_path / "x")
        archive.finish({"schemas": {}})
    with pytest.raises(ArchiveInvalidError, match="does not belong"):
        restore(tmp_path / "file", tmp_path / "new")
    assert not (tmp_path / "new").exists()


def test_a_newer_versions_backup_is_refused(data: Path, tmp_path: Path) -> None:
    with closing(sqlite3.connect(data / "broker.db")) as database:
        database.execute("UPDATE schema_version SET version_num = '9999'")
        database.commit()
    with pytest.raises(BackupError, match="newer version"):
        restore(back_up(data), tmp_path / "new")
    assert not (tmp_path / "new").exists()


def test_a_backup_without_a_node_is_nobodys_same_node(data: Path, tmp_path: Path) -> None:
    (data / "node").unlink()
    file = back_up(data)
    with pytest.raises(BackupError, match="names no node"):
        restore(file, tmp_path / "new", same_node=True)
    assert restore(file, tmp_path / "new").node


def test_a_restore_that_breaks_off_leaves_nothing_and_one_that_was_killed_is_not_served(
    data: Path, tmp_path: Path
) -> None:
    file = back_up(data)
    new = tmp_path / "new"
    seen: list[str] = []

    @contextmanager
    def break_off(what: str, _total: int | None) -> Iterator[Callable[[int], None]]:
        def on_progress(_done: int) -> None:
            if what == "restore":
                seen.extend(names(new))
                with pytest.raises(DataDirInUseError), locked(new):
                    pytest.fail("it is in use")
                shutil.copytree(new, tmp_path / "killed", dirs_exist_ok=True)
                raise KeyboardInterrupt

        yield on_progress

    with pytest.raises(KeyboardInterrupt):
        restore_backup(file, new, same_node=False, counting=break_off)
    assert seen
    assert names(new) == {"lock"}
    with pytest.raises(RestoreUnfinishedError), locked(tmp_path / "killed"):
        pytest.fail("it is half of a data dir")
    restore(file, new)
