"""Users and paths, as SDKs send them."""

import base64

import pytest
from starlette.requests import Request

from sandyard.e2b_api.envd.paths import (
    HOME,
    is_for_machine,
    is_rpc,
    known_user,
    path_of,
    user_of,
    whole_path,
)
from sandyard.e2b_api.errors import NoSuchUserError


@pytest.mark.parametrize(
    ("path", "whole"),
    [
        ("a", "/home/user/a"),
        ("", "/home/user"),
        ("~", "/home/user"),
        ("~/a/../b", "/home/user/b"),
        ("/etc/./x/", "/etc/x"),
    ],
)
def test_paths_begin_at_home(path: str, whole: str) -> None:
    assert whole_path(path, HOME) == whole


def test_there_are_a_user_and_root() -> None:
    assert [known_user(name) for name in (None, "", "user", "root")] == ["user"] * 3 + ["root"]
    with pytest.raises(NoSuchUserError):
        known_user("daemon")
    assert whole_path("~/a", "/root") == "/root/a"


@pytest.mark.parametrize(
    ("header", "user"),
    [
        ("Basic " + base64.b64encode(b"root:").decode(), "root"),
        ("basic " + base64.b64encode(b"user:x").decode(), "user"),
        ("Bearer abc", None),
        ("Basic not-base64", None),
        ("", None),
    ],
)
def test_the_user_of_a_call_is_in_its_authorization(header: str, user: str | None) -> None:
    request = Request({"type": "http", "headers": [(b"authorization", header.encode())]})
    assert user_of(request) == user


@pytest.mark.parametrize(
    ("path", "root", "below", "for_machine", "rpc"),
    [
        ("/e2b/process.Process/Start", "/e2b", "/process.Process/Start", True, True),
        ("/filesystem.Filesystem/Stat", "", "/filesystem.Filesystem/Stat", True, True),
        ("/e2b/files", "/e2b", "/files", True, False),
        ("/e2b/sandboxes", "/e2b", "/sandboxes", False, False),
        ("/e2b", "/e2b", "/", False, False),
        ("/process.Process", "", "/process.Process", False, False),
    ],
)
def test_which_paths_are_a_machine_s(
    path: str, root: str, below: str, for_machine: bool, rpc: bool
) -> None:
    assert path_of({"path": path, "root_path": root}) == below
    assert (is_for_machine(below), is_rpc(below)) == (for_machine, rpc)
