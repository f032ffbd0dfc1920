"""What is on disk about one run: its folder, with a record for each step of its life.

A record is there as a whole or not at all.
"""

import fcntl
import json
import os
import subprocess
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import Any

from sandyard.runtime.model import Ended, Kind, RunId, Running, Snapshot, Starting, Stopping

_STOP = "stop"
# Records outlive the code that wrote them, so their names stay.
_RUNS = "held"
_NAMES_ON_DISK = {"run_id": "owner", "snapshot_error": "snapshot_trouble"}
_NAMES_IN_CODE = {on_disk: in_code for in_code, on_disk in _NAMES_ON_DISK.items()}


class RunFolders:
    """Where the runs of one runtime have their folders."""

    def __init__(self, root: Path) -> None:
        self._path = root / _RUNS

    def path_of(self, run_id: RunId) -> Path:
        return self._path / run_id.kind / run_id.id / run_id.attempt

    def run_ids(self, kind: Kind) -> list[RunId]:
        names = entries(self._path / kind)
        attempts = ((name, attempt) for name in names for attempt in entries(name))
        return [RunId(kind, name.name, attempt.name) for name, attempt in attempts]

    def remove(self, run_id: RunId) -> None:
        path = self.path_of(run_id)
        remove_folder(path)
        try:
            path.parent.rmdir()
        except OSError:
            return  # other attempts of the same sandbox are there


class RunFolder:
    """The records of one run. Who changes them holds the lock."""

    def __init__(self, path: Path) -> None:
        self.path = path

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

    def write_launched(self) -> float:
        """Note that the program begins now; when that is."""
        at = time.time()
        self.write("launched", {"at": at}, durable=False)
        return at

    def launched_at(self) -> float | None:
        found = self.read("launched")
        return None if found is None else float(found["at"])

    def write_running(self, running: Running) -> None:
        self.write("running", to_record(asdict(running)))

    def running(self) -> Running | None:
        found = self.read("running")
        if found is None:
            return None
        deadline = self.read("deadline") or {}
        return Running(**from_record(found | deadline))

    def write_ended(self, ended: Ended, *, final: bool = True) -> None:
        """The end; not final while its snapshot is still being taken."""
        self.write("ended" if final else "ending", to_record(asdict(ended)))

    def ended(self, *, final: bool = True) -> Ended | None:
        found = self.read("ended" if final else "ending")
        if found is None:
            return None
        snapshot = found["snapshot"]
        found["snapshot"] = Snapshot(**snapshot) if snapshot else None
        return Ended(**from_record(found))

    def starting_or_stopping(self, run_id: RunId) -> Starting | Stopping:
        """What it is while it neither runs nor has ended."""
        has_run = self.read("running") is not None
        since_at = self._written_at("ending.json" if has_run else "spec.json", ".")
        return Stopping(run_id, since_at) if has_run else Starting(run_id, since_at)

    def request_stop(self) -> None:
        (self.path / _STOP).touch()

    def stop_is_requested(self) -> bool:
        return (self.path / _STOP).exists()

    def write_heartbeat(self) -> None:
        """Note that the supervisor saw the program alive just now."""
        heartbeat = self.path / "heartbeat"
        heartbeat.touch()

    def last_heartbeat_at(self) -> float:
        return self._written_at("heartbeat", "running.json", "launched.json", "spec.json", ".")

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

        A supervisor inherits it and so holds it until its process ends.
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


def to_record(fields: Mapping[str, Any]) -> dict[str, Any]:
    """The fields of a dataclass by their names on disk."""
    return {_NAMES_ON_DISK.get(name, name): value for name, value in fields.items()}


def from_record(record: dict[str, Any]) -> dict[str, Any]:
    fields = {_NAMES_IN_CODE.get(name, name): value for name, value in record.items()}
    return fields | {"run_id": RunId(**fields["run_id"])}


def remove_folder(path: Path) -> None:
    """Remove the folder and all in it, however deep and whatever its modes.

    `rm` is used because it climbs down trees that are deeper than Python's stack.
    """
    if not path.exists():
        return
    removal = ["rm", "-rf", "--", str(path)]
    if subprocess.run(removal, capture_output=True, check=False).returncode:  # noqa: S603
        subprocess.run(  # noqa: S603
            ["chmod", "-R", "u+rwX", "--", str(path)],  # noqa: S607
            capture_output=True,
            check=False,
        )
        subprocess.run(removal, capture_output=True, check=True)  # noqa: S603


def exists(path: Path) -> bool:
    """Unlike `Path.exists`, only what is missing counts as missing."""
    try:
        path.stat()
    except FileNotFoundError:
        return False
    return True


def entries(folder: Path) -> list[Path]:
    """What is in the folder, sorted; nothing if it is missing."""
    try:
        return sorted(folder.iterdir())
    except FileNotFoundError:
        return []


def sync_folder(path: Path) -> None:
    """Make renames inside the folder outlive a power cut."""
    descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
