"""Files in a workspace whose program may have put anything in their way."""

import os
from pathlib import Path

import pytest

from sandyard.runtime.errors import UnsafePathError
from sandyard.runtime.local.storage.workspace import (
    apply_changes,
    read_procfile,
    unlinked_bytes,
    used_bytes,
)
from sandyard.runtime.model import FileChanges
from sandyard.runtime.records.run_folder import remove_folder


def write(workspace: Path, *deleted: str, **written: bytes) -> None:
    named = {path.replace("__", "/"): content for path, content in written.items()}
    apply_changes(workspace, FileChanges(named, frozenset(deleted)), uid=None)


def test_a_link_in_the_way_is_replaced_and_never_followed(tmp_path: Path) -> None:
    workspace, outside = tmp_path / "workspace", tmp_path / "outside"
    workspace.mkdir()
    outside.mkdir()
    (outside / "kept").write_text("kept")
    (workspace / "folder").symlink_to(outside)
    (workspace / "file").symlink_to(outside / "kept")
    write(workspace, "folder/kept")
    assert (outside / "kept").read_text() == "kept"
    write(workspace, folder__new=b"new", file=b"mine")
    assert list(outside.iterdir()) == [outside / "kept"]
    assert (outside / "kept").read_text() == "kept"
    assert (workspace / "folder/new").read_bytes() == b"new"
    assert (workspace / "file").read_bytes() == b"mine"
    assert not (workspace / "file").is_symlink()


def test_a_full_folder_in_the_way_of_a_file_is_told(tmp_path: Path) -> None:
    (tmp_path / "page/inner").mkdir(parents=True)
    with pytest.raises(UnsafePathError):
        write(tmp_path, page=b"x")
    assert sorted(path.name for path in tmp_path.rglob("*")) == ["inner", "page"]


def test_empty_folders_go_with_their_last_file(tmp_path: Path) -> None:
    write(tmp_path, a__b__c=b"1", a__d=b"2")
    write(tmp_path, "a/b/c")
    assert not (tmp_path / "a/b").exists()
    write(tmp_path, "a/d", "a/d")
    assert list(tmp_path.iterdir()) == []


def test_only_a_plain_procfile_is_read(tmp_path: Path) -> None:
    procfile = tmp_path / "Procfile"
    assert read_procfile(tmp_path) is None
    procfile.symlink_to("/etc/passwd")
    assert read_procfile(tmp_path) is None
    procfile.unlink()
    os.mkfifo(procfile)
    assert read_procfile(tmp_path) is None
    procfile.unlink()
    procfile.mkdir()
    assert read_procfile(tmp_path) is None
    procfile.rmdir()
    procfile.write_bytes(b"web: x\xff")
    assert read_procfile(tmp_path) == "web: x�"


def test_storage_is_what_the_files_take(tmp_path: Path) -> None:
    (tmp_path / "a/b").mkdir(parents=True)
    empty = used_bytes(tmp_path)
    (tmp_path / "a/b/file").write_bytes(os.urandom(1 << 20))
    os.link(tmp_path / "a/b/file", tmp_path / "same")
    with (tmp_path / "hole").open("wb") as file:
        file.truncate(1 << 30)
    (tmp_path / "out").symlink_to("/usr")
    assert 1 << 20 <= used_bytes(tmp_path) - empty < (1 << 20) + 50_000
    for number in range(1000):
        (tmp_path / f"n{number}").touch()
    assert used_bytes(tmp_path) - empty > (1 << 20) + 500_000


def test_files_that_are_deleted_but_open_count_too(tmp_path: Path) -> None:
    with (tmp_path / "file").open("wb") as file:
        file.write(bytes(1 << 20))
        file.flush()
        assert unlinked_bytes(tmp_path, [os.getpid()]) == 0
        (tmp_path / "file").unlink()
        assert unlinked_bytes(tmp_path, [os.getpid()]) >= 1 << 20


def test_a_tree_without_bottom_is_more_than_anyone_may_have_and_can_be_removed(
    tmp_path: Path,
) -> None:
    top = tmp_path / "top"
    top.mkdir()
    here = os.open(top, os.O_RDONLY)
    for _ in range(3000):
        os.mkdir("d", dir_fd=here)
        below = os.open("d", os.O_RDONLY, dir_fd=here)
        os.close(here)
        here = below
    os.close(here)
    assert used_bytes(top) > 1 << 60
    remove_folder(top)
    assert not top.exists()
    remove_folder(top)
