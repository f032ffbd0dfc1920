"""The users of a sandbox: `user`, `root`, and those of its image."""

from sandyard.e2b_api.envd.machine import MachineSession
from sandyard.e2b_api.envd.paths import HOME, ROOT, ROOT_HOME, USER, Account
from sandyard.e2b_api.errors import NoSuchUserError
from sandyard.runtime.errors import FileMissingError, FileRefusedError

_USERS, _GROUPS = "/etc/passwd", "/etc/group"
_ID, _GROUP, _HOME = 2, 3, 5
_MOST_BYTES = 1 << 20


async def account_of(session: MachineSession, given: str | None) -> Account:
    """Of a name or a number, with a group after a colon or without; `user` of none. Without root in
    the sandbox root is `user`, and there are no others. Raises NoSuchUserError."""
    has_root = session.as_root() is not None
    if given == ROOT and has_root:
        return Account(ROOT, ROOT_HOME)
    if given in (None, "", USER, ROOT):
        return Account(USER, HOME)
    name, _, group = str(given).partition(":")
    row = await _row(session, _USERS, name, _HOME) if has_root else None
    if row is not None and group:
        in_group = await _row(session, _GROUPS, group, _ID)
        row[_GROUP] = group if in_group is None else in_group[_ID]
    if row is None or not row[_GROUP].isdigit():
        raise NoSuchUserError(f"invalid username: '{given}'")
    return Account(row[0], row[_HOME] or "/", f"{row[_ID]}:{row[_GROUP]}")


async def _row(session: MachineSession, path: str, name: str, last: int) -> list[str] | None:
    try:
        pieces = [piece async for piece in session.files.read(path, limit=_MOST_BYTES)]
    except (FileMissingError, FileRefusedError):
        return None
    rows = [line.split(":") for line in b"".join(pieces).decode(errors="replace").splitlines()]
    whole = [each for each in rows if len(each) > last and each[_ID].isdigit()]
    return next((each for each in whole if name in (each[0], each[_ID])), None)
