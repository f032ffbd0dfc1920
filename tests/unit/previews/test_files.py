"""The files of a project: paths, sizes and changes at their limits."""

from datetime import UTC, datetime

import pytest

from sandyard.previews.errors import FileConflictError, FilesLimitError, UnsafeFilePathError
from sandyard.previews.files import (
    ChangeSet,
    Difference,
    Entry,
    FileChanges,
    FileLimits,
    ProjectFile,
    Version,
    check_changes,
    check_path,
    differences,
    different_files,
    erased_files,
    readable,
    touched_paths,
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


THERE_WITH_CONTENT = {
    "a": ProjectFile("a", b"1", 1),
    "b": ProjectFile("b", b"23", 1),
    "c": ProjectFile("c", b"4", 2),
}
THERE_ALL = THERE_WITH_CONTENT.items()


def changed(
    changes: ChangeSet, *, versions: int = 9, gone: frozenset[str] = frozenset()
) -> FileChanges | None:
    there = {path: Entry(len(each.content), each.version) for path, each in THERE_ALL}
    touched = {path: THERE_WITH_CONTENT[path] for path in touched_paths(there, changes) - gone}
    limits = FileLimits(files=3, total_bytes=10, versions=versions)
    return different_files(there, touched, changes, limits=limits, now=NOW, message="why")


def test_a_change_set_is_what_it_makes_different() -> None:
    files = changed(ChangeSet({"a": b"1", "d": b"3"}, frozenset({"b", "never-there"})))
    assert files is not None
    assert (files.written, set(files.deleted)) == ({"d": b"3"}, {"b"})
    same = ChangeSet({path: each.content for path, each in THERE_ALL}, is_whole=True)
    assert changed(same) is None


def test_a_change_set_knows_what_it_replaces_and_the_sizes() -> None:
    files = changed(ChangeSet({"a": b"123", "c": b"4"}, frozenset({"b"})))
    assert files is not None
    assert (files.size_before, files.size_after, files.count_after) == (4, 4, 2)
    assert [each.path for each in files.replaced] == ["a", "b"]
    assert files.added_bytes == 3, "what is replaced stays stored"
    assert (files.message, files.keeps) == ("why", 9)


def test_a_file_that_another_server_has_removed_meanwhile_is_not_replaced() -> None:
    files = changed(ChangeSet({"a": b"123"}, frozenset({"b"})), gone=frozenset({"b"}))
    assert files is not None
    assert [each.path for each in files.replaced] == ["a"]


def test_what_is_replaced_is_not_kept_without_earlier_versions() -> None:
    files = changed(ChangeSet({"a": b"123"}, is_whole=True), versions=1)
    assert files is not None
    assert (files.replaced, files.added_bytes) == ((), -1)


def test_all_files_are_erased_in_all_versions() -> None:
    files = erased_files({"a", "b"}, now=NOW)
    assert (dict(files.written), set(files.deleted), files.at) == ({}, {"a", "b"}, NOW)
    assert (files.message, files.keeps) == (None, 0)


def test_versions_differ_by_what_was_written_in_between() -> None:
    before = {"a": Entry(1, 1), "b": Entry(2, 1), "c": Entry(3, 1), "d": Entry(4, 1)}
    after = {"a": Entry(1, 1), "b": Entry(5, 2), "d": Entry(4, 3), "e": Entry(6, 2)}
    assert differences(before, after, {"d"}) == [
        Difference("b", "changed", 2, 5),
        Difference("c", "removed", 3, None),
        Difference("e", "added", None, 6),
    ]


@pytest.mark.parametrize(
    ("stored", "current", "found"),
    [([3, 1, 2], 3, [3, 2, 1]), ([1, 2, 4], 4, [4]), ([1, 2], 3, []), ([], 0, [])],
)
def test_versions_before_one_that_was_not_recorded_can_not_be_read(
    stored: list[int], current: int, found: list[int]
) -> None:
    versions = [Version(each, "system", NOW, "", 1, 1) for each in stored]
    assert [each.version for each in readable(versions, current)] == found
