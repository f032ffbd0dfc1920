"""The interface of a service that runs machines elsewhere and keeps their deadlines."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Literal, Protocol

from sandyard.runtime.remote.envd import Envd


@dataclass(frozen=True, slots=True)
class MachineAddress:
    machine_id: str
    domain: str

    def host(self, port: int) -> str:
        return f"{port}-{self.machine_id}.{self.domain}"


@dataclass(frozen=True, slots=True)
class MachineAccess(MachineAddress):
    """A machine that can be entered; the token is for its envd."""

    token: str


@dataclass(frozen=True, slots=True)
class MachineInfo(MachineAddress):
    metadata: Mapping[str, str]
    started_at: datetime
    end_at: datetime
    state: Literal["running", "paused"]


class RemoteMachines(Protocol):
    """Machines that any server finds by their ids and metadata. Failed calls are raised in the
    words of the part that uses them; that a machine is gone only if the service says so."""

    async def create(
        self, template: str, *, lifetime_sec: float, metadata: Mapping[str, str], pauses: bool
    ) -> MachineAccess:
        """A new machine. The request is sent once; if its response is lost, list by metadata. At
        its end it is paused if its files are still to be stored, or killed."""

    async def connect(self, machine_id: str) -> MachineAccess:
        """A machine that runs; its deadline stays."""

    def envd(self, access: MachineAccess) -> Envd: ...

    async def get(self, machine_id: str) -> MachineInfo: ...

    async def end_time(self, machine_id: str) -> datetime:
        """Its deadline. Hundreds may ask at once."""

    async def list_by_metadata(self, metadata: Mapping[str, str]) -> Sequence[MachineInfo]:
        """The machines with this metadata, running and paused. Their domains may be missing."""

    async def set_timeout(self, machine_id: str, *, lifetime_sec: float) -> None:
        """Set its deadline to this long from now."""

    async def kill(self, machine_id: str) -> None:
        """Return when it no longer exists."""

    async def close(self) -> None:
        """Release local resources. The machines keep running."""
