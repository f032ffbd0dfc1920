"""What is on disk about one owner: the folder that server and supervisor share.

The supervisor writes, the server reads. A record is there as a whole or not at all.
"""

import fcntl
import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal

from sandyard.platform.runtime.local import processes
from sandyard.platform.runtime.model import (
    Ended,
    Limits,
    Owner,
    Running,
    Snapshot,
    Starting,
    Stopping,
)

Isolation = Literal["bubblewrap", "none"]
STOP = "stop"


@dataclass(frozen=True, slots=True)
class Spec:
    """Everything that a supervisor needs to know. It asks nobody and nothing else."""

    owner: Owner
    limits: Limits
    isolation: Isolation
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


class Folder:
    """The records of one owner."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.workspace = path / "workspace"
        self.logs = path / "logs"

    def write(self, name: str, record: dict[str, Any], *, durable: bool = True) -> None:
        """Put the record in place at once; when `durable`, it outlives a power cut from here on."""
        draft = self.path / f".{name}.{os.getpid()}"
        with draft.open("w") as file:
            json.dump(record, file)
            file.flush()
            if durable:
                os.fsync(file.fileno())
        draft.replace(self.path / f"{name}.json")
        if durable:
            sync_folder(self.path)

    def read(self, name: str) -> dict[str, Any] | None:
        try:
            record: dict[str, Any] = json.loads((self.path / f"{name}.json").read_bytes())
        except (FileNotFoundError, NotADirectoryError):
            return None
        return record

    def write_spec(self, spec: Spec) -> None:
        self.write("spec", asdict(spec), durable=False)

    def spec(self) -> Spec | None:
        found = self.read("spec")
        if found is None:
            return None
        found["owner"] = Owner(**found["owner"])
        found["limits"] = Limits(**found["limits"])
        return Spec(**found)

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

    def write_running(self, running: Running) -> None:
        self.write("running", asdict(running))

    def running(self) -> Running | None:
        found = self.read("running")
        if found is None:
            return None
        deadline = self.read("deadline") or {}
        found |= {"owner": Owner(**found["owner"]), **deadline}
        return Running(**found)

    def write_ended(self, ended: Ended, *, final: bool = True) -> None:
        """The end; not final while its snapshot is still being taken."""
        self.write("ended" if final else "ending", asdict(ended))

    def ended(self, *, final: bool = True) -> Ended | None:
        found = self.read("ended" if final else "ending")
        if found is None:
            return None
        snapshot = found["snapshot"]
        found["owner"] = Owner(**found["owner"])
        found["snapshot"] = Snapshot(**snapshot) if snapshot else None
        return Ended(**found)

    def between(self, owner: Owner) -> Starting | Stopping:
        """What it is while it neither runs nor has ended."""
        has_run = self.read("running") is not None
        since_at = self._written_at("ending.json" if has_run else "spec.json", ".")
        return Stopping(owner, since_at) if has_run else Starting(owner, since_at)

    def request_stop(self) -> None:
        (self.path / STOP).touch()

    def stop_is_requested(self) -> bool:
        return (self.path / STOP).exists()

    def beat(self) -> None:
        """Note that the supervisor saw the program alive just now."""
        heartbeat = self.path / "heartbeat"
        heartbeat.touch()

    def last_beat_at(self) -> float:
        return self._written_at("heartbeat", "running.json", "spec.json", ".")

    def _written_at(self, *names: str) -> float:
        """When the first of these that is there was written."""
        for name in names:
            try:
                return (self.path / name).stat().st_mtime
            except FileNotFoundError:
                continue
        return 0.0

    @contextmanager
    def lock(self) -> Iterator[int | None]:
        """The descriptor of the lock, or None if a supervisor or another start has it.

        A supervisor inherits it and so holds it to its last breath.
        """
        descriptor = os.open(self.path / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(descriptor)
            yield None
            return
        try:
            yield descriptor
        finally:
            os.close(descriptor)


def sync_folder(path: Path) -> None:
    """Make renames inside the folder outlive a power cut."""
    descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
