"""The storage that a workspace uses."""

import os
from pathlib import Path

from sandyard.runtime.local.limits.storage_use import unlinked_bytes, used_bytes
from sandyard.runtime.records.run_folder import remove_folder


def test_hard_links_and_holes_count_once_and_names_a_little(tmp_path: Path) -> None:
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


def test_deleted_files_that_are_still_open_count(tmp_path: Path) -> None:
    other_tests = unlinked_bytes(tmp_path, [os.getpid()])
    with (tmp_path / "file").open("wb") as file:
        file.write(bytes(1 << 20))
        file.flush()
        assert unlinked_bytes(tmp_path, [os.getpid()]) == other_tests
        (tmp_path / "file").unlink()
        assert unlinked_bytes(tmp_path, [os.getpid()]) >= other_tests + (1 << 20)


def test_a_very_deep_tree_is_over_any_limit_and_can_be_removed(
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
