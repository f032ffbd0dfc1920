"""Files outside /usr for machines with their own root, created once for all."""

import grp
import json
import os
import pwd
import secrets
import shutil
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from functools import cache
from hashlib import sha256
from pathlib import Path

from sandyard.runtime.images.errors import ImageRefusedError
from sandyard.runtime.local.jail.isolation import MADE_FILES, SYSTEM_FILES, SYSTEM_LINKS, UID_INSIDE
from sandyard.runtime.records.run_folder import remove_folder

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
_ID, _HOME = 2, 5
_MOST_ID = 65_535
_FOLDERS = (
    *(
        "dev",
        "etc/skel",
        "home/user",
        "media",
        "mnt",
        "opt/kernels",
        "proc",
        "root",
        "run/sandyard",
    ),
    *("srv", "sys", "tmp", "usr", "workspace", "var/cache/apt/archives/partial", "var/lib/apt"),
    *("run/sandyard", "var/lib/dpkg", "var/log", "var/spool", "var/tmp"),
)
_IN_MEMORY = ("/run/", "/tmp/")  # noqa: S108 - inside
_FOR_NEW_USERS = {
    "/etc/pam.d/other": "auth sufficient pam_rootok.so\nauth required pam_unix.so\n"
    "account required pam_unix.so\npassword required pam_unix.so yescrypt\n"
    "session required pam_unix.so\n",
    "/etc/login.defs": "UID_MIN 1001\nUID_MAX 60000\nGID_MIN 1001\nGID_MAX 60000\nUMASK 022\n"
    "USERGROUPS_ENAB yes\nENCRYPT_METHOD YESCRYPT\n",
    "/etc/shells": "/bin/sh\n/bin/bash\n",
}
"""What `adduser`, `passwd` and `su` of the host's /usr need; the host's own files stay its own."""


def accounts(root: Path | None) -> Mapping[str, str]:
    """The user and group files by path: those of the root file system plus the machine's user; with
    None, those for the host's /usr."""
    found = _of_debian() if root is None else {path: _text(root, path) for path in MADE_FILES}
    return {
        path: "".join(f"{line}\n" for line in (*_others(found[path]), *MADE_FILES[path].split()))
        for path in (_USERS, _GROUPS)
    }


def find_user(root: Path, given: str) -> tuple[int, int, str]:
    """The user, the group and the home of an image's `user:group`, of which both may be names or
    numbers. Raises ImageRefusedError."""
    name, _, group = given.partition(":")
    found = _row(root, _USERS, name or "root") or [name or "0", "", name or "0", "0", "", "/"]
    group_row = _row(root, _GROUPS, group) or [group, "", group or found[3]]
    ids = (found[_ID], group_row[_ID])
    if not all(each.isascii() and each.isdigit() and int(each) <= _MOST_ID for each in ids):
        raise ImageRefusedError(f"It runs as {given[:64]!r}, and has no such user or group.")
    return int(ids[0]), int(ids[1]), found[_HOME]


def _row(root: Path, path: str, name: str) -> list[str] | None:
    rows = [line.split(":") for line in _text(root, path).splitlines()]
    whole = [each for each in rows if len(each) > (_HOME if path == _USERS else _ID)]
    by_name = (each for each in whole if each[0] == name)
    return next(by_name, None) or next((each for each in whole if each[_ID] == name), None)


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
                if text := content.read(_MOST_BYTES).decode():
                    return text
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


def make_base_files(
    folder: Path, files: Mapping[str, str], folders: Iterable[str], *, root: Path | None = None
) -> Path:
    """A folder below `folder`, for machines with this root file system; with None, it has the files
    that programs of the host's /usr need outside it. In-memory files are not in it."""
    whole = {**MADE_FILES, **files, **accounts(root)}
    if root is None:
        whole |= _FOR_NEW_USERS
    content = {path: text for path, text in whole.items() if not path.startswith(_IN_MEMORY)}
    of_this_machine = root is None
    places = [path for path in folders if not path.startswith(_IN_MEMORY)]
    copied = [Path(each) for each in SYSTEM_FILES if os.path.lexists(each)]
    changes = [[str(each), _changed_at(each)] for each in copied]
    identity = [content, places, of_this_machine, changes]
    made = folder / sha256(json.dumps(identity).encode()).hexdigest()[:16]
    if not made.exists():
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        draft = folder / f".{secrets.token_hex(8)}"
        try:
            _fill(draft, content, (*_FOLDERS, *places))
            if of_this_machine:
                _add_own(draft, copied)
            draft.rename(made)
        except OSError:
            if not made.exists():  # otherwise another was as fast
                raise
        finally:
            remove_folder(draft)
    return made


def _changed_at(path: Path) -> float:
    return path.lstat().st_mtime


def _fill(root: Path, files: Mapping[str, str], folders: Iterable[str]) -> None:
    for path in folders:
        _below(root, path).mkdir(parents=True, exist_ok=True)
    for path, text in files.items():
        file = _below(root, path)
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)
        file.chmod(0o644)
    for folder, *_ in os.walk(root):
        Path(folder).chmod(0o755)
    for name in ("tmp", "var/tmp"):
        (root / name).chmod(0o1777)


def _add_own(root: Path, copied: Iterable[Path]) -> None:
    for source in copied:
        target = _below(root, str(source))
        target.parent.mkdir(parents=True, exist_ok=True)
        if source.is_dir():
            _copy_folder(source, target)
        else:
            shutil.copy(source, target)
    for name in SYSTEM_LINKS:
        path = Path("/", name)
        if path.is_symlink():
            (root / name).symlink_to(str(path.readlink()).removeprefix("/"))


def _copy_folder(source: Path, target: Path) -> None:
    """Hundreds of entries, mostly links: `shutil.copytree` takes ten times as long."""
    target.mkdir(exist_ok=True)
    target.chmod(0o755)
    with os.scandir(source) as entries:
        for entry in entries:
            to = target / entry.name
            if entry.is_symlink():
                to.symlink_to(Path(entry.path).readlink())
            elif entry.is_dir():
                _copy_folder(Path(entry.path), to)
            elif entry.is_file():
                shutil.copy(entry.path, to)


def _below(root: Path, path: str) -> Path:
    return root / path.lstrip("/")
