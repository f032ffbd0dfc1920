"""What server and supervisor share on disk: the supervisor writes, the server reads."""

import os
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path
from typing import Any, Literal, get_args

from sandyard.runtime.local.host import processes
from sandyard.runtime.model import GvisorPlatform, IsolationMode, Kind, Limits, Mount, RunId, Up
from sandyard.runtime.network_model import (
    NO_RULES,
    EgressReport,
    EgressRules,
    Network,
    read_report,
)
from sandyard.runtime.records.recorded_run import from_record, to_record
from sandyard.runtime.records.run_folder import RunFolder, RunFolders, exists

LOCK, START_PIPE = 3, 4
"""The supervisor's descriptors; the second is closed when the outcome of the start is recorded."""
_SETTLED_SEC = 0.1
VolumeKind = Literal["image", "tmpfs", "folder"]
"""Where a workspace's files are stored."""


@dataclass(frozen=True, slots=True)
class Spec:
    """Everything that a supervisor needs to know; it has no other input."""

    run_id: RunId
    limits: Limits
    isolation: IsolationMode
    restore_from: str | None
    snapshot_to: str
    uid: int | None
    """A uid of this sandbox alone; None if the server is not root."""
    allowed_networks: list[str]
    prepare_timeout_sec: float
    snapshot_timeout_sec: float
    log_bytes: int
    port: int = 0
    """The port that the program is told to listen on."""
    lifetime_sec: float = 0
    restores_memory: bool = True
    """Whether its processes go on, if the snapshot has them."""
    ca_file: str | None = None
    kernels: str | None = None
    network: Network = "none"
    rules: EgressRules = NO_RULES
    allowed_hosts: list[str] = field(default_factory=list)
    """Hosts that `packages` can reach."""
    egress_networks: list[str] = field(default_factory=list)
    """Private networks that the machine may still reach."""
    files: dict[str, str] = field(default_factory=dict)
    """Files added to the system inside, by path."""
    folders: list[str] = field(default_factory=list)
    links: dict[str, str] = field(default_factory=dict)
    environment: dict[str, str] = field(default_factory=dict)
    """The variables of all its processes."""
    root: str | None = None
    """Its root file system; None is the host's /usr."""
    entry: dict[str, Any] | None = None
    """What the image that it is from runs, an `EntryPoint`."""
    volume: VolumeKind = "folder"
    base_files: str | None = None
    """Its files outside /usr, if it has its own root."""
    cgroup_root: str | None = None
    gvisor_platform: GvisorPlatform = "systrap"
    disk_reserve_bytes: int = 0
    """The part of the disk that it must leave free."""
    mounts: list[Mount] = field(default_factory=list)
    volumes: str = ""
    """The folder of all volumes."""


class LocalRunFolder(RunFolder):
    def __init__(self, path: Path) -> None:
        super().__init__(path)
        self.workspace = path / "workspace"
        self.image = path / "workspace.img"
        self.volume = path / "volume"
        self.logs = path / "logs"

    def write_spec(self, spec: Spec) -> None:
        self.write("spec", to_record(asdict(spec)), durable=False)

    def has_spec(self) -> bool:
        return exists(self.path / "spec.json")

    def spec(self) -> Spec | None:
        return self.read("spec", _spec)

    def write_up(self, up: Up) -> None:
        self.write("up", to_record(asdict(up)), durable=False)

    def up(self) -> Up | None:
        """The machine once it can be entered, with its current deadline."""
        moved = self.read("deadline", dict) or {}
        return self.read("up", lambda found: Up(**from_record(found | moved)))

    def says_up(self) -> bool:
        """Whether its last record says that it can be entered; read for each session."""
        return self.has("up", "ending", "ended") == [True, False, False]

    def up_version(self) -> tuple[object, ...]:
        """Changes whenever `up` may return something else. Raises OSError, but not for missing
        files."""
        return tuple(map(_version, (self.path / "up.json", self.path / "deadline.json")))

    def version(self, *, now: float) -> object | None:
        """Changes with each record that is written; None just after one, as the times of files are
        not exact."""
        with suppress(FileNotFoundError):
            found = self.path.stat()
            if found.st_mtime + _SETTLED_SEC < now:
                return found.st_ino, found.st_mtime_ns
        return None

    def write_deadline(self, at: float, *, keeps_memory: bool | None = None) -> None:
        """Not durable: a power cut ends the machine, and with it the deadline."""
        moved = (self.read("deadline", dict) or {}) | {"deadline_at": at}
        kept = {} if keeps_memory is None else {"keeps_memory": keeps_memory}
        self.write("deadline", moved | kept, durable=False)

    def egress(self) -> EgressReport | None:
        return self.read("egress", _egress_report)

    def write_supervisor(self) -> None:
        pid = os.getpid()
        self.write("supervisor", {"pid": pid, "identity": processes.identity(pid)}, durable=False)

    def supervisor_pid(self) -> int | None:
        """The supervisor if it is alive: the same pid and start time."""
        found = self.read("supervisor", lambda found: (int(found["pid"]), found["identity"]))
        return found[0] if found and processes.identity(found[0]) == found[1] else None


def _spec(record: dict[str, Any]) -> Spec:
    record["mounts"] = [Mount(**each) for each in record.get("mounts", [])]
    record["limits"] = Limits(**record["limits"])
    record["rules"] = EgressRules.of(record.get("rules", {}))
    known = {each.name for each in fields(Spec)}
    return Spec(**{name: value for name, value in from_record(record).items() if name in known})


def _egress_report(record: dict[str, Any]) -> EgressReport:
    return read_report(record, record["network"])


def _version(path: Path) -> tuple[int, int] | None:
    """Records are replaced, never changed."""
    try:
        found = path.stat()
    except FileNotFoundError:
        return None
    return found.st_ino, found.st_mtime_ns


def specs_in_use(runtime_folder: Path) -> Iterator[Spec]:
    runs = RunFolders(runtime_folder)
    for run_id in (run_id for kind in get_args(Kind) for run_id in runs.run_ids(kind)):
        folder = LocalRunFolder(runs.path_of(run_id))
        if folder.ended() is None and (spec := folder.spec()) is not None:
            yield spec
