"""The interface through which the Platform and Previews run programs."""

from collections.abc import AsyncIterator, Mapping, Sequence
from typing import Protocol

from sandyard.runtime.model import (
    Ended,
    FileChanges,
    IsolationMode,
    Kind,
    Limits,
    Program,
    RunId,
    Running,
    RunState,
    Sample,
    Snapshot,
)
from sandyard.runtime.network_model import NO_RULES, EgressReport, EgressRules, Network
from sandyard.runtime.secrets_model import MachineSecrets
from sandyard.runtime.sessions.ports import Session


class VolumeFiles(Protocol):
    """The files of volumes on this node, which machines mount. Every method raises UnavailableError
    if they can't be reached."""

    async def create(self, volume_id: str, size_bytes: int, *, copy_of: str | None = None) -> None:
        """Empty, or with what another has now; nothing if it exists. Raises
        VolumesUnsupportedError, DiskFullError, VolumeBusyError while a machine may write to the
        other."""

    async def resize(self, volume_id: str, size_bytes: int) -> None:
        """Raises VolumeTooSmallError, VolumeBusyError while a machine has it."""

    async def delete(self, volume_id: str) -> None:
        """Nothing if it does not exist. Raises VolumeBusyError."""

    async def written_at(self) -> Mapping[str, float]:
        """When each was last written, by its id."""


class Runtime(Protocol):
    """Runs machines with their programs, each under a run id, with state that survives the server.

    There is at most one machine per run id. It keeps its deadline exactly, and its program is
    watched and started again by its policy, with growing pauses of up to a minute; both also while
    no server runs. Unless that policy is `ends_machine`, the machine outlives its program. How and
    when it ended is stored until `forget`. Every method raises UnavailableError if the runtime is
    unavailable; that is never reported as an end.
    """

    async def check(self, isolation: IsolationMode | None = None) -> None:
        """Return if programs can be started here, with this isolation at least; ask before a
        start, which does not ask again. Raises IsolationMissingError."""

    async def start(self, run_id: RunId, program: Program, limits: Limits) -> Running:
        """Return when the program listens on its PORT, has failed, or did not listen in time: its
        state is told. It may end in the same moment.

        - With the policy `ends_machine`, a program that fails or does not listen in time is a start
          that failed.
        - Concurrent calls for one run id start one program; all of them get it, or its failure.
        - Raises a StartFailedError that names the reason, and then nothing runs; an Ended with
          the reason `not_started` is stored until `forget`.
        - Raises AttemptEndedError if this attempt has already ended, InvalidError or
          SnapshotNotFoundError if it can't be tried: then nothing is stored.
        """

    async def start_program(self, run_id: RunId, program: Program) -> Running:
        """Start the program of a running machine, again if it runs, from the files that are there
        now; returns as `start`. Raises NotRunningError, InvalidError."""

    async def stop_program(self, run_id: RunId) -> Running:
        """Return when the program has ended; its machine goes on. Raises NotRunningError."""

    async def stop(self, run_id: RunId, *, has_memory: bool = False) -> Ended:
        """End the program and all its processes; returns the same Ended when repeated. The
        workspace is stored as a snapshot, also at a timeout, but not if its start failed. With
        `has_memory` the snapshot has its processes too, and they go on when it is started again; if
        they can't be kept, it runs on: MemoryNotKeptError. Raises RunNotFoundError."""

    async def find(self, run_id: RunId) -> RunState | None:
        """The run's state as it was last recorded."""

    async def refresh(self, run_id: RunId) -> RunState | None:
        """Record what has happened to the run, and return its state. One that lost its supervisor,
        or the server that was starting it, is ended first, with its processes."""

    async def run_ids(self, kind: Kind) -> Sequence[RunId]:
        """The ids of all runs of this kind that are not forgotten."""

    async def versions(self, kind: Kind) -> Mapping[RunId, object]:
        """The version of each that runs and of which `find` knows all. While that is the same,
        nothing has happened to it; one without is to be refreshed."""

    async def list_runs(self, kind: Kind) -> Sequence[RunState]:
        """All runs of this kind that are not forgotten, each as `refresh` returns it, without those
        whose record is broken: they are logged."""

    async def forget(self, run_id: RunId) -> None:
        """Drop the record, the logs and the workspace, not the snapshot; nothing if unknown.

        Raises StillRunningError.
        """

    async def extend(
        self, run_id: RunId, *, deadline_at: float, keeps_memory: bool | None = None
    ) -> Running:
        """Move the deadline, to a later or an earlier time. `keeps_memory` is whether its processes
        are kept then, if they can be; None is as before. Raises NotRunningError."""

    async def sample(self, run_id: RunId) -> Sample:
        """Measure the real process tree. Raises NotRunningError."""

    async def tail_logs(self, run_id: RunId, *, lines: int) -> Sequence[str]:
        """The last lines that the program wrote, oldest first. Raises RunNotFoundError."""

    def follow_logs(self, run_id: RunId, *, lines: int = 0) -> AsyncIterator[str]:
        """The last `lines` and then each new one, until the run has ended.

        Old lines may be missing when it writes faster than they are read. Raises RunNotFoundError.
        """

    async def write_files(self, run_id: RunId, changes: FileChanges) -> None:
        """Update the files of a running program, each file atomically.

        No path leaves the workspace, whatever links the program made there. Raises UnsafePathError
        before anything is written, FilesTooLargeError and NotRunningError.
        """

    async def session(self, run_id: RunId) -> Session:
        """A session in a running program's machine. Raises RunNotFoundError, NotRunningError."""

    async def set_network(
        self, run_id: RunId, network: Network, rules: EgressRules = NO_RULES
    ) -> None:
        """Set what it may reach from now on, closing other connections. Raises NotRunningError."""

    async def set_secrets(self, run_id: RunId, secrets: MachineSecrets) -> None:
        """Set what its egress proxy puts into requests from now on, in place of what it had. Its
        programs trust it for that if it was started with secrets of the same authority. Raises
        NotRunningError, SecretsUnsupportedError, SecretsTooLargeError."""

    async def egress_report(self, run_id: RunId) -> EgressReport:
        """Its outgoing traffic and refusals, even of an ended run. Raises RunNotFoundError."""

    async def save_archive(
        self, run_id: RunId, archive_id: str, *, has_memory: bool = False
    ) -> Snapshot:
        """Store the files of a running program, which keeps running, for others to start with; with
        its processes if `has_memory`. Raises NotRunningError, MemoryNotKeptError,
        StoreUnavailableError and the errors of reading files; then it is removed later, as one that
        nobody uses."""

    async def list_archives(self) -> Sequence[Snapshot]: ...

    async def delete_archive(self, archive_id: str) -> None:
        """Return when it no longer exists."""

    async def has_snapshot(self, snapshot_id: str) -> bool:
        """Whether a start here could restore it; if not, another node may have it."""

    async def store_snapshot(self, snapshot_id: str, *, timeout_sec: float | None = None) -> None:
        """Return when it is durable in the store of files; at once without a store. Raises
        StoreUnavailableError, or StoringError after the timeout: then it is here, and its storing
        continues."""

    async def list_snapshots(self) -> Sequence[Snapshot]: ...

    async def delete_snapshot(self, snapshot_id: str) -> None:
        """Return when it no longer exists."""
