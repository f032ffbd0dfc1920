"""The files of a project: paths, sizes and changes at their limits."""

from datetime import UTC, datetime

import pytest

from sandyard.previews.errors import FileConflictError, FilesLimitError, UnsafeFilePathError
from sandyard.previews.files import (
    ChangeSet,
    FileChanges,
    FileLimits,
    check_changes,
    check_path,
    different_files,
    erased_files,
)

NOW = datetime(2026, 3, 1, 12, tzinfo=UTC)
LONGEST_PATH = "/".join(["x" * 200] * 2 + ["é" * 55])
"""512 bytes in fewer characters."""


@pytest.mark.parametrize(
    "path",
    ["a", ".env", "a/..b", "…/é", "a b", "x" * 200, "é" * 100, "/".join("a" * 30), LONGEST_PATH],
)
def test_a_path_that_stays_inside_is_taken(path: str) -> None:
    check_path(path)


@pytest.mark.parametrize(
    "path",
    [
        *("", "/", "/a", "a/", "a//b", ".", "..", "a/./b", "a/../b", "../a", "a\\b"),
        *("x" * 201, "é" * 101, "/".join("a" * 31), LONGEST_PATH + "x"),
        *("a\0", "a\x1f", "a\n", "a\x7f", "a\x9f", "\ud800", "\udfff"),
    ],
)
def test_a_path_that_might_not_is_refused(path: str) -> None:
    with pytest.raises(UnsafeFilePathError):
        check_path(path)


@pytest.mark.parametrize("letter", [" ", "~", "\xa0", "\ud7ff", "\ue000", "😀"])
def test_letters_beside_those_that_are_refused_are_taken(letter: str) -> None:
    check_path(f"a{letter}b")


LIMITS = FileLimits(files=3, total_bytes=10)
THERE = {"a": 4, "b/c": 4}


class TestChanges:
    @pytest.mark.parametrize(
        "changes",
        [
            ChangeSet(),
            ChangeSet({"d": b"12"}),
            ChangeSet({"a": b"123456"}),
            ChangeSet({"d": b"123456"}, frozenset({"a"})),
            ChangeSet({"d": b"1234567890"}, is_whole=True),
            ChangeSet({"b": b""}, frozenset({"b/c"})),
            ChangeSet({"b": b""}, is_whole=True),
            ChangeSet({"bb": b""}),
            ChangeSet({}, frozenset({"not there"})),
        ],
    )
    def test_are_taken_up_to_the_limits(self, changes: ChangeSet) -> None:
        check_changes(changes, THERE, LIMITS)

    @pytest.mark.parametrize(
        ("changes", "after"),
        [
            (ChangeSet({"d": b"123"}), {"files": 3, "bytes": 11}),
            (ChangeSet({"a": b"1234567"}), {"files": 2, "bytes": 11}),
            (ChangeSet({"d": b"", "e": b""}), {"files": 4, "bytes": 8}),
            (ChangeSet({"d": b"1" * 11}, is_whole=True), {"files": 1, "bytes": 11}),
        ],
    )
    def test_are_refused_beyond(self, changes: ChangeSet, after: dict[str, int]) -> None:
        with pytest.raises(FilesLimitError) as refused:
            check_changes(changes, THERE, LIMITS)
        assert refused.value.details == after

    @pytest.mark.parametrize(
        "changes",
        [
            ChangeSet({"a": b""}, frozenset({"a"})),
            ChangeSet({"b": b""}),
            ChangeSet({"a/d": b""}),
            ChangeSet({"d": b"", "d/e/f": b""}, is_whole=True),
        ],
    )
    def test_make_nothing_a_file_and_a_folder_at_once(self, changes: ChangeSet) -> None:
        with pytest.raises(FileConflictError):
            check_changes(changes, THERE, LIMITS)

    @pytest.mark.parametrize("changes", [ChangeSet({"../a": b""}), ChangeSet({}, frozenset({""}))])
    def test_have_safe_paths_only(self, changes: ChangeSet) -> None:
        with pytest.raises(UnsafeFilePathError):
            check_changes(changes, THERE, LIMITS)


def test_a_change_set_is_what_it_makes_different() -> None:
    there = {"a": b"1", "b": b"2"}
    changes = ChangeSet({"a": b"1", "c": b"3"}, frozenset({"b", "never-there"}))
    files = different_files(there, changes, limits=FileLimits(files=2, total_bytes=10), now=NOW)
    assert files is not None
    assert (files.written, set(files.deleted)) == ({"c": b"3"}, {"b"})
    same = ChangeSet(there, is_whole=True)
    assert different_files(there, same, limits=FileLimits(files=2, total_bytes=10), now=NOW) is None


@pytest.mark.parametrize(("before", "after", "adds"), [(4, 5, True), (4, 4, False), (4, 3, False)])
def test_only_files_that_take_more_than_before_add_something(
    before: int, after: int, adds: bool
) -> None:
    files = FileChanges({}, (), NOW, size_before=before, size_after=after)
    assert files.adds is adds


def test_a_change_set_knows_the_sizes_before_and_after() -> None:
    changes = ChangeSet({"a": b"123"}, frozenset({"b"}))
    files = different_files({"a": b"1", "b": b"23", "c": b"4"}, changes, limits=LIMITS, now=NOW)
    assert files is not None
    assert (files.size_before, files.size_after) == (4, 4)


def test_all_files_are_erased_if_there_are_any() -> None:
    files = erased_files({"a": b"12", "b": b"3"}, now=NOW)
    assert files is not None
    assert (dict(files.written), set(files.deleted), files.at) == ({}, {"a", "b"}, NOW)
    assert (files.size_before, files.size_after, files.adds) == (3, 0, False)
    assert erased_files({}, now=NOW) is None
