"""Files are written in a workspace whose programs may have put anything in their way."""

from pathlib import Path

import pytest

from sandyard.runtime.guest import RefusedError
from sandyard.runtime.guest.files import UNSAFE_PATH, apply_changes


def write(workspace: Path, *deleted: str, **written: bytes) -> None:
    named = {path.replace("__", "/"): content for path, content in written.items()}
    apply_changes(str(workspace), named, deleted)


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


def test_a_file_does_not_replace_a_folder_that_is_not_empty(tmp_path: Path) -> None:
    (tmp_path / "page/inner").mkdir(parents=True)
    with pytest.raises(RefusedError) as refused:
        write(tmp_path, page=b"x")
    assert refused.value.code == UNSAFE_PATH
    assert sorted(path.name for path in tmp_path.rglob("*")) == ["inner", "page"]


def test_empty_folders_go_with_their_last_file(tmp_path: Path) -> None:
    write(tmp_path, a__b__c=b"1", a__d=b"2")
    write(tmp_path, "a/b/c")
    assert not (tmp_path / "a/b").exists()
    write(tmp_path, "a/d", "a/d")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("path", ["../out", "a//b", "./a", "a/..", "/etc/passwd", ""])
def test_a_path_that_leads_out_changes_nothing(tmp_path: Path, path: str) -> None:
    (tmp_path / "file").write_text("old")
    with pytest.raises(RefusedError):
        apply_changes(str(tmp_path), {"file": b"new", path: b"x"}, ())
    assert (tmp_path / "file").read_text() == "old"
