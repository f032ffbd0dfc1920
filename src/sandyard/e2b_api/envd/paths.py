"""Users and paths inside a sandbox, as E2B's SDKs send them."""

import base64
import binascii
import posixpath

from starlette.requests import Request

from sandyard.e2b_api.errors import NoSuchUserError
from sandyard.e2b_api.model import HOME, ROOT, ROOT_HOME, USER


def known_user(name: str | None) -> str:
    """Raises NoSuchUserError."""
    if name not in (None, "", USER, ROOT):
        raise NoSuchUserError(f"invalid username: '{name}'")
    return name or USER


def home_of(user: str) -> str:
    return ROOT_HOME if user == ROOT else HOME


def user_of(request: Request) -> str | None:
    """The user of a call: the name in `Authorization: Basic`, without a password."""
    kind, _, encoded = request.headers.get("authorization", "").partition(" ")
    if kind.lower() != "basic":
        return None
    try:
        return base64.b64decode(encoded, validate=True).decode().partition(":")[0]
    except (binascii.Error, UnicodeDecodeError):
        return None


def whole_path(path: str, home: str = HOME) -> str:
    """Relative to the home, unless it is absolute."""
    if path == "~" or path.startswith("~/"):
        path = home + path[1:]
    return posixpath.normpath(posixpath.join(home, path or "."))
