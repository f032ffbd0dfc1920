"""The records of one run on disk: its folder, with a record for each step of its life.

A record is complete or absent.
"""

import asyncio
import fcntl
import json
import os
import subprocess
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager, contextmanager, suppress
from dataclasses import asdict
from pathlib import Path
from typing import Any, TypeVar

from sandyard.kit.errors import InvalidError
from sandyard.runtime.errors import InvalidRunIdError, RecordBrokenError, RunNotFoundError
from sandyard.runtime.guest.program import ProgramState
from sandyard.runtime.model import Ended, Kind, Limits, RunId, Running
from sandyard.runtime.records.recorded_run import (
    RunRecord,
    begun_record,
    running_record,
    to_record,
)

T = TypeVar("T")
_STOP = "stop"
_TAKEN = "taken"
_FEW = 64
_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_RUNS = "held"  # a name on disk, which outlives the code


class RunFolders:
    def __init__(self, root: Path) -> None:
        self._path = root / _RUNS

    def of(self, run_id: RunId) -> "RunFolder":
        return RunFolder(self.path_of(run_id))

    def path_of(self, run_id: RunId) -> Path:
        """Its folder; for a run that was handed over, its original one."""
        path = self._entry(run_id)
        return path.resolve() if path.is_symlink() else path

    def _entry(self, run_id: RunId) -> Path:
        return self._path / run_id.kind / run_id.id / run_id.attempt

    def run_ids(self, kind: Kind) -> list[RunId]:
        """Those of folders whose names are such; others are not ours."""
        found: list[RunId] = []
        for name in entries(self._path / kind):
            for attempt in entries(name) if name.is_dir() else ():
                with suppress(InvalidRunIdError):
                    found.append(RunId(kind, name.name, attempt.name))
        return found

    def remove(self, run_id: RunId) -> None:
        entry, folder = self._entry(run_id), self.path_of(run_id)
        remove_folder(folder)
        if entry != folder:
            entry.unlink(missing_ok=True)
        for path in {entry, folder}:
            with suppress(OSError):  # other attempts of the same sandbox exist
                path.parent.rmdir()


class WarmFolders(RunFolders):
    """`WarmRecords` of this machine."""

    is_shared = False

    async def warm_ids(self) -> Sequence[RunId]:
        return await asyncio.to_thread(self.run_ids, "warm")

    async def taken_at(self, run_id: RunId) -> float | None:
        return self.of(run_id).taken_at()

    async def take(self, run_id: RunId, *, to: RunId | None = None) -> bool:  # noqa: ARG002
        return self.of(run_id).take()

    async def hand_over(self, run_id: RunId, to: Running, limits: Limits) -> None:
        await asyncio.to_thread(self._hand_over, run_id, to, limits)

    async def is_handed_over(self, run_id: RunId) -> bool:
        running = self.of(run_id).running()
        return (
            running is not None
            and running.run_id != run_id
            and (self._entry(running.run_id).is_symlink())
        )

    def _hand_over(self, run_id: RunId, to: Running, limits: Limits) -> None:
        folder, entry = self.of(run_id), self._entry(to.run_id)
        folder.write("begun", begun_record(limits, to.started_at), durable=False)
        folder.write("launched", {"at": to.started_at}, durable=False)
        folder.write("running", running_record(to), durable=False)
        entry.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        entry.symlink_to(os.path.relpath(folder.path, entry.parent))


class RunFolder(RunRecord):
    """The records of one run and of its machine, as files. They outlive the server."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def write(self, name: str, record: dict[str, Any], *, durable: bool = True) -> None:
        write_record(self.path / f"{name}.json", record, durable=durable)

    def read(self, name: str, parse: Callable[[dict[str, Any]], T]) -> T | None:
        path = self.path / f"{name}.json"
        try:
            return parse(json.loads(path.read_bytes()))
        except (FileNotFoundError, NotADirectoryError):
            return None
        except (ValueError, KeyError, TypeError, InvalidError) as error:
            raise RecordBrokenError(reason=f"{path} is broken: {error!r}") from error

    async def put(self, name: str, record: dict[str, Any], *, durable: bool = True) -> None:
        self.write(name, record, durable=durable)

    async def put_stop(self) -> None:
        self.request_stop()

    def has(self, *names: str) -> list[bool]:
        """Which of these records exist. One that can't be checked counts as missing."""
        return [os.access(f"{self.path}/{name}.json", os.F_OK) for name in names]

    def write_program(self, program: ProgramState) -> None:
        self.write("program", asdict(program), durable=False)

    def says_running(self) -> bool:
        return self.has("running", "failure") == [True, False]

    def write_ended(self, ended: Ended, *, final: bool = True) -> None:
        """The end; not final while its snapshot is still being taken."""
        self.write("ended" if final else "ending", to_record(asdict(ended)))

    def take(self) -> bool:
        """Whether the caller gets it: of concurrent callers, only one does."""
        try:
            (self.path / _TAKEN).touch(exist_ok=False)
        except FileExistsError:
            return False
        return True

    def taken_at(self) -> float | None:
        return self._written_at(_TAKEN) or None

    def request_stop(self) -> None:
        """Raises RunNotFoundError if the folder is gone."""
        try:
            (self.path / _STOP).touch()
        except FileNotFoundError as error:
            raise RunNotFoundError from error

    def stop_is_requested(self) -> bool:
        return (self.path / _STOP).exists()

    def write_heartbeat(self) -> None:
        """Record that the supervisor just saw the program alive."""
        heartbeat = self.path / "heartbeat"
        heartbeat.touch()

    def last_heartbeat_at(self) -> float:
        """When a record was last written that shows it alive."""
        return self._written_at("heartbeat", "running.json", "launched.json", "spec.json")

    def _written_at(self, *names: str) -> float:
        """The latest modification time of these; 0 if there are none."""
        times = [0.0]
        for name in names:
            with suppress(FileNotFoundError):
                times.append((self.path / name).stat().st_mtime)
        return max(times)

    @asynccontextmanager
    async def start_lock(self) -> AsyncIterator[bool]:
        self.path.mkdir(parents=True, exist_ok=True, mode=0o700)
        with self.lock("start.lock") as descriptor:
            yield descriptor is not None

    @contextmanager
    def lock(self, name: str = "lock") -> Iterator[int | None]:
        """The lock's descriptor, or None if another process has it; a process that inherits it
        holds the lock until it ends."""
        descriptor = os.open(self.path / name, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
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


def write_record(path: Path, record: Mapping[str, Any], *, durable: bool = True) -> None:
    """Write the record atomically; with `durable`, it then survives a power cut."""
    draft = path.with_name(f".{path.stem}.{os.getpid()}")
    with draft.open("w") as file:
        json.dump(record, file)
        file.flush()
        if durable:
            os.fsync(file.fileno())
    draft.replace(path)
    if durable:
        sync_folder(path.parent)


def remove_folder(path: Path) -> None:
    """Remove the folder and everything in it, however deep and whatever its modes.

    Uses `rm`, which handles trees that are deeper than Python's stack.
    """
    if not path.exists() or _remove_flat(path):
        return
    removal = ["rm", "-rf", "--", str(path)]
    if subprocess.run(removal, capture_output=True, check=False).returncode:  # noqa: S603
        subprocess.run(  # noqa: S603
            ["chmod", "-R", "u+rwX", "--", str(path)],  # noqa: S607
            capture_output=True,
            check=False,
        )
        subprocess.run(removal, capture_output=True, check=True)  # noqa: S603


def _remove_flat(path: Path) -> bool:
    """Whether it was removed, which works only for few files and folders."""
    try:
        folder = os.open(path, _FOLDER)
        try:
            _empty(folder, deepest=1)
        finally:
            os.close(folder)
        path.rmdir()
    except OSError:
        return False
    return True


def _empty(folder: int, *, deepest: int) -> None:
    """Raises OSError if there is more than it removes; follows no links."""
    with os.scandir(folder) as listed:
        found = [entry for entry, _ in zip(listed, range(_FEW), strict=False)]
    for entry in found:
        if not entry.is_dir(follow_symlinks=False):
            os.unlink(entry.name, dir_fd=folder)
            continue
        if deepest:
            below = os.open(entry.name, _FOLDER, dir_fd=folder)
            try:
                _empty(below, deepest=deepest - 1)
            finally:
                os.close(below)
        os.rmdir(entry.name, dir_fd=folder)


def exists(path: Path) -> bool:
    """Unlike `Path.exists`, only FileNotFoundError counts as missing."""
    try:
        path.stat()
    except FileNotFoundError:
        return False
    return True


def entries(folder: Path) -> list[Path]:
    """The entries of the folder, sorted; none if it is missing."""
    try:
        return sorted(folder.iterdir())
    except FileNotFoundError:
        return []


def sync_folder(path: Path) -> None:
    """Make renames inside the folder survive a power cut."""
    descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
