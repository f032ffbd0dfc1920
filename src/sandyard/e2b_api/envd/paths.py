"""Users and paths of a machine, as E2B's SDKs send them, and the paths of its API."""

import base64
import binascii
import posixpath
from dataclasses import dataclass

from starlette.requests import Request
from starlette.types import Scope

from sandyard.e2b_api.errors import NoSuchUserError

HOME = "/home/user"
ROOT_HOME = "/root"
USER, ROOT = "user", "root"


@dataclass(frozen=True, slots=True)
class Account:
    """A user of a machine."""

    name: str
    home: str
    ids: str | None = None
    """`uid:gid` of a user of the image, as commands take it."""


_RPC = ("/process.Process/", "/filesystem.Filesystem/")
_PLAIN = frozenset({"/health", "/files", "/envs", "/metrics"})


def is_rpc(path: str) -> bool:
    return path.startswith(_RPC)


def is_for_machine(path: str) -> bool:
    """Whether the path belongs to a machine's API, and not to the control API."""
    return path in _PLAIN or path.startswith(_RPC)


def path_of(scope: Scope) -> str:
    """The path below the application's root."""
    path: str = scope["path"]
    return path.removeprefix(scope.get("root_path", "")) or "/"


def known_user(name: str | None) -> str:
    if name not in (None, "", USER, ROOT):
        raise NoSuchUserError(f"invalid username: '{name}'")
    return name or USER


def user_of(request: Request) -> str | None:
    """The user of a call: the name in `Authorization: Basic`, without a password."""
    kind, _, encoded = request.headers.get("authorization", "").partition(" ")
    if kind.lower() != "basic":
        return None
    try:
        return base64.b64decode(encoded, validate=True).decode().partition(":")[0]
    except (binascii.Error, UnicodeDecodeError):
        return None


def whole_path(path: str, home: str) -> str:
    """Relative to the home, unless it is absolute."""
    if path == "~" or path.startswith("~/"):
        path = home + path[1:]
    return posixpath.normpath(posixpath.join(home, path or "."))
