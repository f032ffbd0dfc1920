"""Paths and commands that can be none."""

import pytest

from sandyard.runtime.errors import CommandRefusedError, InvalidPathError
from sandyard.runtime.sessions.model import Command, absolute_path, command_message


@pytest.mark.parametrize(
    ("path", "whole"), [("a/b", "/workspace/a/b"), ("/etc", "/etc"), (".", "/workspace/.")]
)
def test_a_path_begins_at_the_workspace_unless_it_is_absolute(path: str, whole: str) -> None:
    assert absolute_path(path) == whole


@pytest.mark.parametrize("path", ["", "a\0b", "\ud800", "/" + "x" * 4095])
def test_what_is_no_path_is_refused(path: str) -> None:
    with pytest.raises(InvalidPathError):
        absolute_path(path)


@pytest.mark.parametrize(
    "command",
    [
        Command(()),
        Command(("a\0b",)),
        Command(("a",), environment={"": "x"}),
        Command(("a",), environment={"A=B": "x"}),
        Command(("a",), environment={"A": "x\0"}),
    ],
)
def test_what_is_no_command_is_refused(command: Command) -> None:
    with pytest.raises(CommandRefusedError):
        command_message(command)
    command_message(Command(("a", ""), environment={"A": ""}))
