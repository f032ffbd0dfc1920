"""The machine in which calls act: what each implementation offers, on this server or alone; and its
users: `user`, `root`, and those of its image."""

from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, TypeVar

from sandyard.e2b_api.envd.paths import HOME, ROOT, ROOT_HOME, USER, Account
from sandyard.e2b_api.errors import NoSuchUserError
from sandyard.e2b_api.tokens import FileLink
from sandyard.runtime.errors import FileMissingError, FileRefusedError
from sandyard.runtime.sessions.model import EVERYTHING, FileInfo, FileSelection
from sandyard.runtime.sessions.ports import BasicFiles, Processes

T = TypeVar("T")
_USER_ID = 1000
_READ = 0o005
"""Read and search permission for everybody, on a folder."""
_USERS, _GROUPS = "/etc/passwd", "/etc/group"
_ID, _GROUP, _HOME = 2, 3, 5
_MOST_BYTES = 1 << 20


class MachineSession(Protocol):
    """What the calls need of a `Session`."""

    @property
    def files(self) -> BasicFiles: ...

    @property
    def processes(self) -> Processes: ...

    def as_root(self, *, for_user: bool = False) -> "MachineSession | None": ...


class OwnFiles:
    """The user's own permissions are tried first: they are usually sufficient, and root's agent
    need not be started. In a machine without root, there are no others."""

    def __init__(self, session: MachineSession, *, is_root: bool = False) -> None:
        self._session = session
        self._is_root = is_root

    async def stat(self, path: str) -> FileInfo:
        return await self._try(lambda files: files.stat(path))

    async def list(
        self, path: str, *, depth: int = 1, selection: FileSelection = EVERYTHING
    ) -> Sequence[FileInfo]:
        return await self._try(lambda files: files.list(path, depth=depth, selection=selection))

    async def read(
        self, path: str, offset: int = 0, limit: int | None = None
    ) -> AsyncIterator[bytes]:
        async def begin(files: BasicFiles) -> tuple[bytes, AsyncIterator[bytes]]:
            pieces = files.read(path, offset=offset, limit=limit)
            return await anext(pieces, b""), pieces

        first, pieces = await self._try(begin)
        yield first
        async for piece in pieces:
            yield piece

    async def write(self, path: str, content: AsyncIterator[bytes]) -> FileInfo:
        """A refusal comes before any content is read; after that there is no second attempt."""
        is_begun = False

        async def taken() -> AsyncIterator[bytes]:
            nonlocal is_begun
            async for piece in content:
                is_begun = True
                yield piece

        async def write(files: BasicFiles) -> FileInfo:
            if is_begun:
                raise FileRefusedError
            return await files.write(path, taken())

        return await self._try(write)

    async def set_attributes(self, path: str, attributes: Mapping[str, str]) -> FileInfo:
        return await self._try(lambda files: files.set_attributes(path, attributes))

    async def make_folder(self, path: str) -> bool:
        return await self._try(lambda files: files.make_folder(path))

    async def move(self, source: str, target: str) -> FileInfo:
        return await self._try(lambda files: files.move(source, target))

    async def remove(self, path: str) -> None:
        await self._try(lambda files: files.remove(path))

    async def watched(self, path: str) -> BasicFiles:
        """The files with the permissions needed to watch the folder."""
        info, as_root = await self.stat(path), self._root()
        may_read = info.uid in (None, _USER_ID) or info.mode & _READ == _READ
        return self._session.files if may_read or as_root is None else as_root.files

    async def _try(self, call: Callable[[BasicFiles], Awaitable[T]]) -> T:
        try:
            return await call(self._session.files)
        except FileRefusedError:
            as_root = self._root()
            if as_root is None:
                raise
            return await call(as_root.files)

    def _root(self) -> MachineSession | None:
        return None if self._is_root else self._session.as_root(for_user=True)


@dataclass(frozen=True, slots=True)
class Credentials:
    """The sandbox that a call names, if any, and what gives access to it."""

    sandbox_id: str | None
    token: str | None = None
    link: FileLink | None = None


class Machine(Protocol):
    @property
    def id(self) -> str: ...

    async def open(self, user: str | None) -> "UserSession":
        """As this user, or as the default one. Raises NoSuchUserError."""

    async def variables(self, session: "UserSession") -> Mapping[str, str]:
        """The environment variables of commands."""

    async def metrics(self) -> Mapping[str, Any]: ...

    async def check_access(self) -> None:
        """Raises AccessTokenMissingError if the credentials that it was entered with are no longer
        valid; those that have only expired meanwhile are."""


class Machines(Protocol):
    """Where there are several, every method raises AccessTokenMissingError, whether the machine
    exists or not; LinkOverError; SandboxGoneError if it does not run."""

    async def enter(self, credentials: Credentials) -> Machine: ...

    async def require_running(self, credentials: Credentials) -> None:
        """Has no effect on the machine."""


@dataclass(frozen=True, slots=True)
class UserSession:
    machine: Machine
    session: MachineSession
    account: Account
    folder: str
    """The default working directory of commands."""

    @property
    def home(self) -> str:
        return self.account.home

    @property
    def files(self) -> OwnFiles:
        """Of `user` too where it is a user of the image."""
        return OwnFiles(self.session, is_root=self.account.name == ROOT)


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
