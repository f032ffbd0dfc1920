"""Builds on this node's disk, which its processes share: a record and a log for each.

The process that runs a build holds the lock of its log. A build whose log is not locked does not
run any more.
"""

import fcntl
import json
import os
import re
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import IO, Any, Literal

from sandyard.e2b_api.templates.finder import TemplateName
from sandyard.runtime.records.run_folder import entries, write_record

Status = Literal["waiting", "building", "ready", "error"]
Entry = dict[str, Any]

LONGEST_LINE = 4096
_MOST_LOG_BYTES = 1 << 20
_BUILD_ID = re.compile(r"[0-9a-f-]{36}")
_INTERRUPTED = {"message": "The server stopped during the build.", "step": "base"}


@dataclass(frozen=True, slots=True)
class BuildRequest:
    name: TemplateName
    tags: Sequence[str]
    cpu: float
    memory_gb: float


@dataclass(frozen=True, slots=True)
class Build:
    build_id: str
    template_id: str
    account_id: str
    wanted: BuildRequest
    asked_at: float
    status: Status = "waiting"
    reason: Entry | None = None
    """Why it failed."""

    @property
    def is_open(self) -> bool:
        return self.status in ("waiting", "building")


class BuildLog:
    """The log of a running build. It holds at most a megabyte, and the last entry after that."""

    def __init__(self, file: IO[bytes]) -> None:
        self._file = file
        self._written = 0

    def append(self, entry: Entry, *, is_last: bool = False) -> bool:
        """Whether there is space for more."""
        line = json.dumps(entry).encode() + b"\n"
        has_space = self._written + len(line) <= _MOST_LOG_BYTES
        if has_space or is_last:
            self._file.write(line)
            self._written += len(line)
        return has_space

    def close(self) -> None:
        self._file.close()


class BuildFolder:
    def __init__(self, path: Path) -> None:
        self._path = path

    def write(self, build: Build) -> None:
        record = self._file(build.account_id, build.build_id, "json")
        record.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        write_record(record, asdict(build), durable=False)

    def find(self, account_id: str, build_id: str) -> Build | None:
        if not _BUILD_ID.fullmatch(build_id):
            return None
        try:
            found = json.loads(self._file(account_id, build_id, "json").read_bytes())
        except FileNotFoundError:
            return None
        wanted = found["wanted"] | {"name": TemplateName(**found["wanted"]["name"])}
        build = Build(**found | {"wanted": BuildRequest(**wanted)})
        if build.status == "building" and not self._is_running(build):
            return replace(build, status="error", reason=_INTERRUPTED)
        return build

    def list(self, account_id: str) -> Sequence[Build]:
        """Oldest first."""
        names = [each.stem for each in entries(self._path / account_id) if each.suffix == ".json"]
        found = [build for name in names if (build := self.find(account_id, name)) is not None]
        return sorted(found, key=lambda each: each.asked_at)

    def account_ids(self) -> Sequence[str]:
        return [each.name for each in entries(self._path)]

    def delete(self, build: Build) -> None:
        for suffix in ("json", "log"):
            self._file(build.account_id, build.build_id, suffix).unlink(missing_ok=True)
        with suppress(OSError):  # it has other builds
            (self._path / build.account_id).rmdir()

    def open_log(self, build: Build) -> BuildLog | None:
        """For the process that runs the build; None if another one does."""
        file = self._file(build.account_id, build.build_id, "log").open("ab", buffering=0)
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            file.close()
            return None
        return BuildLog(file)

    def entries(self, build: Build) -> Sequence[Entry]:
        try:
            lines = self._file(build.account_id, build.build_id, "log").read_bytes().split(b"\n")
        except FileNotFoundError:
            return []
        return [json.loads(line) for line in lines[:-1]]

    def _is_running(self, build: Build) -> bool:
        with suppress(FileNotFoundError):
            log = os.open(self._file(build.account_id, build.build_id, "log"), os.O_RDONLY)
            try:
                fcntl.flock(log, fcntl.LOCK_SH | fcntl.LOCK_NB)
            except BlockingIOError:
                return True
            finally:
                os.close(log)
        return False

    def _file(self, account_id: str, build_id: str, suffix: str) -> Path:
        return self._path / account_id / f"{build_id}.{suffix}"
