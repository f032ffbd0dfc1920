"""What server and supervisor share on disk: the supervisor writes, the server reads."""

import os
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Literal

from sandyard.runtime.local import processes
from sandyard.runtime.model import Limits, RunId
from sandyard.runtime.records import RunFolder, from_record, to_record

IsolationMode = Literal["bubblewrap", "none"]


@dataclass(frozen=True, slots=True)
class Spec:
    """Everything that a supervisor needs to know. It asks nobody and nothing else."""

    run_id: RunId
    limits: Limits
    isolation: IsolationMode
    repository_url: str | None
    template: str | None
    """The folder of the built-in template, if the repository is one."""
    restore_from: str | None
    snapshot_to: str
    environment: dict[str, str]
    uid: int | None
    """The uid of this sandbox alone; None if the server is not root."""
    python: str
    allowed_networks: list[str]
    git_ca_file: str | None
    prepare_timeout_sec: float
    listen_timeout_sec: float
    snapshot_timeout_sec: float
    log_bytes: int


class LocalRunFolder(RunFolder):
    """The records of one run, its workspace and its logs."""

    def __init__(self, path: Path) -> None:
        super().__init__(path)
        self.workspace = path / "workspace"
        self.logs = path / "logs"

    def write_spec(self, spec: Spec) -> None:
        self.write("spec", to_record(asdict(spec)), durable=False)

    def spec(self) -> Spec | None:
        found = self.read("spec")
        if found is None:
            return None
        found["limits"] = Limits(**found["limits"])
        return Spec(**from_record(found))

    def write_supervisor(self) -> None:
        """Say which process supervises: this one."""
        pid = os.getpid()
        self.write("supervisor", {"pid": pid, "identity": processes.identity(pid)}, durable=False)

    def supervisor_pid(self) -> int | None:
        """The supervisor if it lives: the same pid, begun at the same instant."""
        found = self.read("supervisor")
        if found is None or processes.identity(found["pid"]) != found["identity"]:
            return None
        return int(found["pid"])
