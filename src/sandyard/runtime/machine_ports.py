"""The interface of the machines. A machine is isolated, has limits and a deadline, and outlives the
server."""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from sandyard.runtime.model import (
    EntryPoint,
    IsolationMode,
    Kind,
    Log,
    MachineSpec,
    MachineState,
    RunId,
    Sample,
    Snapshot,
    Up,
)
from sandyard.runtime.network_model import NO_RULES, EgressReport, EgressRules, Network
from sandyard.runtime.secrets_model import MachineSecrets
from sandyard.runtime.sessions.ports import Session


@dataclass(frozen=True, slots=True)
class Egress:
    """Egress of a machine, for as long as its context lasts."""

    environment: Mapping[str, str]
    """The variables by which a command finds the proxy."""
    refused: Callable[[], Awaitable[str | None]]
    """The host that was refused because its address is private, if one was."""


class Machines(Protocol):
    """Machines, at most one for each run id.

    A machine ends exactly at its deadline or over a limit, even if no server runs, and with its
    program if that has the policy `ends_machine`. Else its program is started again by its policy;
    `refresh` records its state in the run's folder. How a machine ended is stored until `forget`.
    Every method raises UnavailableError if the machines can't be reached; that is never reported as
    an end.
    """

    async def check(self, isolation: IsolationMode | None = None) -> None:
        """Return if machines can be made here, with this isolation at least. Raises
        IsolationMissingError."""

    async def create(self, run_id: RunId, spec: MachineSpec) -> Up:
        """Return when it can be entered, with the files of the snapshot if one is named, and with
        its processes if it has them; one whose processes can't go on here says so in its log.

        Raises a StartFailedError that names the reason; then there is no machine. Raises
        SnapshotNotFoundError before anything is made.
        """

    async def find(self, run_id: RunId) -> MachineState | None:
        """The machine's state as it was last recorded."""

    async def refresh(self, run_id: RunId) -> MachineState | None:
        """Record what has happened to the machine, and return its state. One that lost its
        supervisor is ended first."""

    async def run_ids(self, kind: Kind) -> Sequence[RunId]:
        """The run ids of all machines of this kind that are not forgotten."""

    async def versions(self, kind: Kind) -> Mapping[RunId, object]:
        """The version of each that runs and of which `find` knows all. While that is the same,
        nothing has happened to it; one without is to be refreshed."""

    async def session(self, run_id: RunId) -> Session:
        """Raises NotRunningError or RunNotFoundError."""

    async def set_deadline(
        self, run_id: RunId, deadline_at: float, *, keeps_memory: bool | None = None
    ) -> float:
        """Move the deadline, to a later or an earlier time; returns the current one. `keeps_memory`
        is whether its snapshot then has its processes too, if its isolation can keep them; None is
        as before. Raises NotRunningError."""

    async def stop(self, run_id: RunId, *, has_memory: bool = False) -> None:
        """Request its end; `find` shows when it has ended. Its files are stored as a snapshot if
        its program has run; with its processes if `has_memory`. Then it goes on if they can't be
        kept: MemoryNotKeptError. No effect if it has ended."""

    async def forget(self, run_id: RunId) -> None:
        """Drop everything stored about an ended machine, except its snapshot."""

    async def sample(self, run_id: RunId) -> Sample:
        """Measure its resource use. Raises NotRunningError."""

    async def workspace_bytes(self, run_id: RunId) -> int:
        """The current size of its files. Raises NotRunningError."""

    async def pack(self, run_id: RunId, to: Path, *, has_memory: bool = False) -> bool:
        """Write all its changes, including those of its system, and its processes if `has_memory`,
        to this file, completely or not at all; it keeps running. False if the machines do not
        support it: then its files are read by a session. Raises NotRunningError,
        MemoryNotKeptError."""

    async def stop_program(self, run_id: RunId) -> None:
        """Return when its program has ended; it is not started again. Raises NotRunningError."""

    async def entry_point(self, run_id: RunId) -> EntryPoint | None:
        """What its image runs; None if it has no image, or that runs nothing."""

    async def read_log(self, run_id: RunId, begin: int | None) -> Log:
        """Its program's output from this byte on; with None, all that is stored."""

    def egress(self, run_id: RunId) -> AbstractAsyncContextManager[Egress]:
        """Let its commands reach public addresses for as long as the context lasts."""

    async def set_network(
        self, run_id: RunId, network: Network, rules: EgressRules = NO_RULES
    ) -> None:
        """Set what it may reach from now on. Raises NotRunningError."""

    async def set_secrets(self, run_id: RunId, secrets: MachineSecrets) -> None:
        """As `Runtime.set_secrets`."""

    async def egress_report(self, run_id: RunId) -> EgressReport:
        """Its known outgoing connections and refusals."""

    async def has_snapshot(self, snapshot_id: str) -> bool: ...

    async def require_snapshot(self, snapshot_id: str) -> None:
        """Return when a machine can start from it here. Raises SnapshotNotFoundError,
        StoreUnavailableError, ObjectDamagedError."""

    async def store_snapshot(self, snapshot_id: str, *, timeout_sec: float | None = None) -> None:
        """As `Runtime.store_snapshot`."""

    async def list_snapshots(self) -> Sequence[Snapshot]: ...

    async def delete_snapshot(self, snapshot_id: str) -> None: ...
