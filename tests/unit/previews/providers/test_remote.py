"""What is sent to a machine together, and what is deleted before it."""

from sandyard.previews.providers.remote import in_the_way
from sandyard.runtime.remote.envd import uploads


def test_all_paths_are_sent_once_and_not_too_many_at_once() -> None:
    files = {f"{number:03}.txt": b"" for number in range(120)}
    batches = [list(batch) for batch in uploads(files)]
    assert [len(batch) for batch in batches] == [50, 50, 20]
    assert sorted(path for batch in batches for path in batch) == sorted(files)
    assert list(uploads({})) == []


def test_large_files_are_not_sent_together() -> None:
    files = {"a": bytes(10 << 20), "b": bytes(10 << 20), "c": bytes(40 << 20), "d": b""}
    assert [list(batch) for batch in uploads(files)] == [["a"], ["b"], ["c"], ["d"]]


def test_a_path_that_a_form_would_change_is_sent_by_itself() -> None:
    files = dict.fromkeys(("a", 'b"c', "d", "e%22", "f\\g", "h"), b"")
    batches = [list(batch) for batch in uploads(files)]
    assert batches == [['b"c'], ["e%22"], ["f\\g"], ["a", "d", "h"]]


def test_a_folder_whose_name_a_file_takes_is_deleted_with_its_files() -> None:
    assert in_the_way({"a": b"", "b/c": b""}, ["a/x/y", "b/c/d", "z"]) == {
        *("a", "a/x/y"),
        *("b/c", "b/c/d"),
        "z",
    }
    assert in_the_way({"a/b": b""}, ["a"]) == {"a"}
    assert in_the_way({"aa": b""}, ["a/b"]) == {"a/b"}
