"""Where a backup is written, and what of a data dir is in it."""

import errno
import os
import sqlite3
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import pytest

from sandyard.entrypoints.backup.archive import Manifest
from sandyard.entrypoints.backup.errors import ArchiveInvalidError, BackupError
from sandyard.entrypoints.backup.writing import find_source, write_backup
from sandyard.entrypoints.cli.server.backup import summary
from sandyard.runtime.store.archives import ArchiveFolder
from sandyard.settings import load_settings
from tests.support.storage.disks import small_disk


@contextmanager
def uncounted(_what: str, _total: int | None) -> Iterator[Callable[[int], None]]:
    yield lambda _: None


@pytest.fixture
def data(tmp_path: Path) -> Path:
    folder = tmp_path / "data"
    folder.mkdir()
    (folder / "node").write_text("n1")
    return folder


def back_up(data: Path, file: Path, *, replace: bool = False) -> Manifest:
    source = find_source(load_settings(), data, with_secrets=True)
    return write_backup(source, file, uncounted, replace=replace)


@pytest.mark.parametrize("name", ["platform.db", "new", "secrets/new"])
def test_no_backup_is_written_into_the_data_dir(data: Path, tmp_path: Path, name: str) -> None:
    (data / "secrets").mkdir()
    (data / "platform.db").write_text("in use")
    (tmp_path / "alias").symlink_to(data)
    for folder in (data, tmp_path / "alias", data / ".." / "data"):
        source = find_source(load_settings(), data, with_secrets=True)
        with pytest.raises(BackupError, match="inside the data dir"):
            write_backup(source, folder / name, uncounted, replace=True)
    assert (data / "platform.db").read_text() == "in use"


def test_a_database_that_a_symlink_leads_to_is_not_replaced(data: Path, tmp_path: Path) -> None:
    (tmp_path / "broker.db").write_text("in use")
    (data / "broker.db").symlink_to(tmp_path / "broker.db")
    with pytest.raises(BackupError, match="inside the data dir"):
        back_up(data, tmp_path / "broker.db", replace=True)


def test_a_file_is_replaced_only_if_that_is_asked_for(data: Path, tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.write_text("mine")
    with pytest.raises(BackupError, match="--force"):
        back_up(data, file)
    assert file.read_text() == "mine"
    back_up(data, file, replace=True)
    assert file.read_bytes()[:2] == b"\x1f\x8b"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["data", "file"]


def test_a_file_that_is_not_as_it_was_written_is_no_backup(data: Path, tmp_path: Path) -> None:
    """As of a disk that does not keep what it was given."""

    @contextmanager
    def damaging(what: str, _total: int | None) -> Iterator[Callable[[int], None]]:
        if what == "check":
            [draft] = tmp_path.rglob("archive")
            assert draft.stat().st_mode & 0o777 == 0o600
            content = bytearray(draft.read_bytes())
            for at in range(len(content) // 4, len(content) * 3 // 4):  # a bit may mean nothing
                content[at] ^= 1
            draft.write_bytes(content)
        yield lambda _: None

    source = find_source(load_settings(), data, with_secrets=True)
    with pytest.raises(ArchiveInvalidError):
        write_backup(source, tmp_path / "file", damaging)
    assert list(tmp_path.iterdir()) == [data]


def test_what_is_no_plain_file_is_never_replaced(data: Path, tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(BackupError, match="not a plain file"):
        back_up(data, tmp_path / "pipe", replace=True)


def test_a_folder_that_is_missing_is_told_by_the_files_name(data: Path, tmp_path: Path) -> None:
    file = tmp_path / "nowhere" / "x"
    with pytest.raises(BackupError) as on_progress:
        back_up(data, file)
    assert on_progress.value.message == f"{file} can't be written: No such file or directory."


def test_what_a_symlink_stands_for_is_in_it(data: Path, tmp_path: Path) -> None:
    (tmp_path / "elsewhere" / ".keys").mkdir(parents=True)
    (tmp_path / "elsewhere" / ".keys" / "jwt_secret").write_text("s")
    (tmp_path / "elsewhere" / "disk" / "snapshots").mkdir(parents=True)
    (tmp_path / "elsewhere" / "disk" / "snapshots" / "1").write_text("files")
    (data / "node").rename(tmp_path / "elsewhere" / ".name")
    (data / "node").symlink_to(tmp_path / "elsewhere" / ".name")
    (data / "secrets").symlink_to("../elsewhere/.keys")
    (data / "runtime").symlink_to(tmp_path / "elsewhere" / "disk")
    manifest = back_up(data, tmp_path / "file")
    assert set(manifest.files) == {"node", "secrets/jwt_secret", "runtime/snapshots/1"}
    assert "secrets: included" in summary(manifest)


async def test_archives_that_templates_begin_with_are_in_it(data: Path, tmp_path: Path) -> None:
    async def content() -> AsyncIterator[bytes]:
        yield b"files"

    archives = ArchiveFolder(data / "runtime/archives")
    await archives.write("whole", content())
    (data / "runtime/archives/half.new-00ff").write_bytes(b"fi")
    manifest = back_up(data, tmp_path / "file")
    assert {each for each in manifest.files if "archives" in each} == {"runtime/archives/whole.tar"}


def test_the_store_of_files_is_named(data: Path, tmp_path: Path) -> None:
    assert "stored files" not in "".join(summary(back_up(data, tmp_path / "before")))
    (data / "snapshot-store").write_text("s3://files/prefix")
    manifest = back_up(data, tmp_path / "file")
    assert "snapshot-store" in manifest.files
    assert "stored files: in s3://files/prefix; copy it after this, within a day" in summary(
        manifest
    )


@pytest.mark.parametrize("name", ["secrets", "runtime"])
def test_a_symlink_that_leads_nowhere_is_told(data: Path, tmp_path: Path, name: str) -> None:
    (data / name).symlink_to(tmp_path / "unmounted")
    with pytest.raises(BackupError, match="unmounted, which does not exist"):
        back_up(data, tmp_path / "file")
    assert not (tmp_path / "file").exists()


def test_secrets_are_told_from_what_is_in_it(data: Path, tmp_path: Path) -> None:
    (data / "secrets").mkdir()
    manifest = back_up(data, tmp_path / "file")
    assert manifest.about["has_secrets"] is False
    assert "secrets: not in the file" in summary(manifest)


def test_what_is_on_another_file_system_is_copied(
    data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object) -> None:
        raise OSError(errno.EXDEV, os.strerror(errno.EXDEV))

    monkeypatch.setattr(os, "link", refuse)
    (data / "secrets").mkdir()
    (data / "secrets" / "jwt_secret").write_text("s")
    assert set(back_up(data, tmp_path / "file").files) == {"node", "secrets/jwt_secret"}
    assert not (data / "backup").exists()


def test_a_full_disk_is_told_with_the_file_that_does_not_fit(data: Path, tmp_path: Path) -> None:
    with closing(sqlite3.connect(data / "broker.db")) as database:
        database.execute("CREATE TABLE filler (content BLOB)")
        database.execute("INSERT INTO filler VALUES (randomblob(4000000))")
        database.commit()
    with small_disk(tmp_path, megabytes=1) as disk:
        file = disk.path / "backup"
        with pytest.raises(BackupError) as refused:
            back_up(data, file)
        assert list(disk.path.iterdir()) == []
    expected = f"{file} can't be written: the disk of {disk.path} is full. Free some space, or"
    assert refused.value.message.startswith(expected)


def test_a_full_disk_is_told_also_if_no_database_is_copied(data: Path, tmp_path: Path) -> None:
    secrets = data / "secrets"
    secrets.mkdir()
    (secrets / "token").write_bytes(os.urandom(4_000_000))
    with small_disk(tmp_path, megabytes=1) as disk, pytest.raises(BackupError, match="is full"):
        back_up(data, disk.path / "backup")
