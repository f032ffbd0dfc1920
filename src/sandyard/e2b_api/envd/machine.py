"""The machine in which calls act: what each implementation offers, on this server or alone."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Protocol

from sandyard.e2b_api.envd.own_files import MachineSession, OwnFiles
from sandyard.e2b_api.envd.paths import ROOT
from sandyard.e2b_api.tokens import FileLink


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
        ...

    async def variables(self, session: "UserSession") -> Mapping[str, str]:
        """The environment variables of commands."""
        ...

    async def metrics(self) -> Mapping[str, Any]: ...


class Machines(Protocol):
    async def authorize(self, credentials: Credentials) -> str:
        """The id of the machine, which may have ended. Raises AccessTokenMissingError, whether it
        exists or not, and LinkOverError."""
        ...

    async def enter(self, machine_id: str | None) -> Machine:
        """Raises SandboxGoneError if it does not run."""
        ...


@dataclass(frozen=True, slots=True)
class UserSession:
    """A session of one of the machine's users."""

    machine: Machine
    session: MachineSession
    user: str
    home: str
    folder: str
    """The default working directory of commands."""

    @property
    def files(self) -> OwnFiles:
        return OwnFiles(self.session, is_root=self.user == ROOT)
