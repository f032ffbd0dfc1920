"""Users and paths inside a sandbox, as E2B's SDKs give them."""

import base64
import binascii
import posixpath

from starlette.requests import Request

from sandyard.e2b_api.errors import NoSuchUserError
from sandyard.e2b_api.model import HOME

USER = "user"
_USERS = frozenset({"", USER, "root"})
"""There is one user inside; `root` is taken for it, and may no more than it."""


def require_user(name: str | None) -> None:
    if (name or "") not in _USERS:
        raise NoSuchUserError(f"invalid username: '{name}'")


def user_of(request: Request) -> str | None:
    """Of a call, whose `Authorization` is `Basic` with a name and no password."""
    kind, _, encoded = request.headers.get("authorization", "").partition(" ")
    if kind.lower() != "basic":
        return None
    try:
        return base64.b64decode(encoded, validate=True).decode().partition(":")[0]
    except (binascii.Error, UnicodeDecodeError):
        return None


def whole_path(path: str) -> str:
    """From the home on, unless it is absolute."""
    if path == "~" or path.startswith("~/"):
        path = HOME + path[1:]
    return posixpath.normpath(posixpath.join(HOME, path or "."))
