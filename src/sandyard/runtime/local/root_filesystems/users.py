"""Users and groups of a machine with its own root."""

import grp
import os
import pwd
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from functools import cache
from pathlib import Path

from sandyard.runtime.local.jail.bubblewrap import MADE_FILES, UID_INSIDE

_USERS, _GROUPS = "/etc/passwd", "/etc/group"
_DEBIAN = {
    _USERS: Path("/usr/share/base-passwd/passwd.master"),
    _GROUPS: Path("/usr/share/base-passwd/group.master"),
}
_GIVEN = Path("/var/lib/dpkg/statoverride")
"""Ownership overrides of packages; dpkg requires their users and groups to exist."""
_ELSEWHERE = {
    _USERS: "root:x:0:0:root:/root:/bin/bash\n"
    "daemon:x:1:1:daemon:/usr/sbin:/usr/sbin/nologin\n"
    "www-data:x:33:33:www-data:/var/www:/usr/sbin/nologin\n"
    "nobody:x:65534:65534:nobody:/nonexistent:/usr/sbin/nologin\n",
    _GROUPS: "root:x:0:\ndaemon:x:1:\nadm:x:4:\ntty:x:5:\nmail:x:8:\nwww-data:x:33:\n"
    "utmp:x:43:\nshadow:x:42:\nstaff:x:50:\nnogroup:x:65534:\n",
}
_MOST_BYTES = 1 << 18
_ID = 2


def accounts(root: Path | None) -> Mapping[str, str]:
    """The user and group files by path: those of the root file system plus the machine's user; with
    None, those for the host's /usr."""
    found = _of_debian() if root is None else {path: _text(root, path) for path in MADE_FILES}
    return {
        path: "".join(f"{line}\n" for line in (*_others(found[path]), *MADE_FILES[path].split()))
        for path in (_USERS, _GROUPS)
    }


def _others(text: str) -> Iterator[str]:
    """The lines of everyone but the machine's own user."""
    for line in text.splitlines():
        name, *rest = line.split(":")
        if len(rest) > 1 and name != "user" and rest[_ID - 1] != str(UID_INSIDE):
            yield line


def _text(root: Path, path: str) -> str:
    """Does not follow links, which could lead to a file of the host."""
    file = root / path.lstrip("/")
    with suppress(OSError, UnicodeDecodeError):
        if not file.parent.is_symlink():
            flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
            with os.fdopen(os.open(file, flags), "rb") as content:
                return content.read(_MOST_BYTES).decode()
    return _ELSEWHERE.get(path, "")


@cache
def _of_debian() -> Mapping[str, str]:
    """The users of every Debian, plus those of the host that own files of packages."""
    known = {path: _master(path) for path in (_USERS, _GROUPS)}
    given = [line.split() for line in _lines(_GIVEN)]
    users = (_line(each[0], known[_USERS], _user) for each in given if len(each) > 1)
    groups = (_line(each[1], known[_GROUPS], _group) for each in given if len(each) > 1)
    return {
        _USERS: known[_USERS] + "".join(dict.fromkeys(users)),
        _GROUPS: known[_GROUPS] + "".join(dict.fromkeys(groups)),
    }


def _master(path: str) -> str:
    return "".join(f"{line}\n" for line in _lines(_DEBIAN[path])) or _ELSEWHERE[path]


def _lines(path: Path) -> Sequence[str]:
    with suppress(OSError):
        return path.read_text().splitlines()
    return ()


def _line(name: str, known: str, find: Callable[[str], str]) -> str:
    """The host's line for a name that is not in `known`; empty if the host has none."""
    if any(line.startswith(f"{name}:") for line in known.splitlines()):
        return ""
    with suppress(KeyError):
        return find(name)
    return ""


def _user(name: str) -> str:
    found = pwd.getpwnam(name)
    return f"{name}:x:{found.pw_uid}:{found.pw_gid}::/nonexistent:/usr/sbin/nologin\n"


def _group(name: str) -> str:
    return f"{name}:x:{grp.getgrnam(name).gr_gid}:\n"
