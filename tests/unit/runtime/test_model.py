"""Run ids, paths and Procfiles at their edges."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sandyard.runtime.errors import InvalidRunIdError, UnsafePathError
from sandyard.runtime.model import RunId, path_parts, procfile_lines

LONGEST_PATH = "/".join(["x" * 255] * 3 + ["x" * 250, "é" * 2 + "x"])
"""1024 bytes in fewer characters."""


@pytest.mark.parametrize("name", ["a", "A-1_b", "9" * 64])
def test_plain_names_make_a_run_id(name: str) -> None:
    assert str(RunId("preview", name, "a1")) == f"preview.{name}.a1"


@pytest.mark.parametrize("name", ["", "-a", "_a", ".", "..", "a.b", "a/b", "a\n", "é", "9" * 65])
def test_names_that_mean_something_to_a_file_system_do_not(name: str) -> None:
    with pytest.raises(InvalidRunIdError):
        RunId("sandbox", name, "a1")
    with pytest.raises(InvalidRunIdError):
        RunId("sandbox", "a1", name)


@pytest.mark.parametrize(
    "path", ["a", "a/b", ".env", "a/..b", "…/é", "x" * 255, "/".join("a" * 32), LONGEST_PATH]
)
def test_a_path_that_stays_inside_is_taken_apart(path: str) -> None:
    assert "/".join(path_parts(path)) == path


@pytest.mark.parametrize(
    "path",
    [
        *("", "/", "/a", "a/", "a//b", ".", "..", "a/./b", "a/../b", "../a", "a\0", "a\\b"),
        *("x" * 256, "/".join("a" * 33), LONGEST_PATH + "x", "é" * 128, "\ud800"),
    ],
)
def test_a_path_that_might_not_is_refused(path: str) -> None:
    with pytest.raises(UnsafePathError):
        path_parts(path)


@given(st.text())
def test_whatever_is_taken_has_only_plain_parts(path: str) -> None:
    try:
        parts = path_parts(path)
    except UnsafePathError:
        return
    assert parts
    assert all(part not in ("", ".", "..") and "/" not in part for part in parts)


@pytest.mark.parametrize(
    ("procfile", "command"),
    [
        ("web: run it", "run it"),
        ("worker: x\r\nweb:run it  \r\nweb: second", "run it"),
        ("web:\trun", "run"),
        ("web: \t run\t", "run"),
        ("\n\nweb: a: b # c\n", "a: b # c"),
        ("Web: run", None),
        ("web : run", None),
        ("", None),
        ("web:", None),
        ("web:   \nx", None),
        (" web: run", None),
        ("website: run", None),
        ("# web: run", None),
    ],
)
def test_the_first_web_line_tells_the_command(procfile: str, command: str | None) -> None:
    assert procfile_lines(procfile).get("web") == command
