"""The files, processes and ports inside a machine."""

import re
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any, Literal

from sandyard.runtime.errors import CommandRefusedError, InvalidPathError
from sandyard.runtime.guest.program import ProgramPolicy

FileKind = Literal["file", "folder", "link", "other"]
ChangeKind = Literal["created", "written", "removed", "renamed", "attributes"]
Stream = Literal["stdout", "stderr", "terminal"]

WORKSPACE = "/workspace"
"""The base of relative paths."""
PROCESS_ID = re.compile(r"[a-z0-9]{1,32}")
_LONGEST_PATH = 4095


@dataclass(frozen=True, slots=True)
class FileInfo:
    """An entry of a folder. `target` is a link's text, wherever it leads; `attributes` are the
    extended ones of its user's namespace that are text."""

    path: str
    kind: FileKind
    size_bytes: int
    mode: int
    modified_at: float
    target: str | None = None
    attributes: Mapping[str, str] = field(default_factory=dict)
    uid: int | None = None
    """Its owner inside; None if unknown."""
    gid: int | None = None

    @property
    def name(self) -> str:
        return self.path.rpartition("/")[2]


@dataclass(frozen=True, slots=True)
class FileSelection:
    """The entries of a listing: the first `limit` after this path, or all; each with the attributes
    whose names begin with `attributes`, or with none."""

    after: str | None = None
    limit: int | None = None
    attributes: str | None = None

    def arguments(self) -> dict[str, Any]:
        """Those that are set, as they are sent into a machine."""
        return {name: value for name, value in asdict(self).items() if value is not None}


EVERYTHING = FileSelection()


@dataclass(frozen=True, slots=True)
class FileChange:
    path: str
    kind: ChangeKind


@dataclass(frozen=True, slots=True)
class TerminalSize:
    columns: int = 80
    rows: int = 24


@dataclass(frozen=True, slots=True)
class Command:
    """The command to run. With a `terminal` its output is one stream and its input is what is
    typed."""

    arguments: tuple[str, ...]
    environment: Mapping[str, str] = field(default_factory=dict)
    folder: str = WORKSPACE
    user: str | None = None
    """The user that runs it; None is the machine's ordinary one. On this node, also `uid:gid`."""
    terminal: TerminalSize | None = None
    has_input: bool = False
    """Whether its standard input is open; otherwise it reads nothing."""
    tag: str | None = None
    """A name given by the caller, to find it again."""
    program: ProgramPolicy | None = None
    """For the machine's one program: what follows when it ends. Its output is the log."""
    unattended_sec: float | None = None
    """Hung up when nobody has followed its output for this long; None is never. Only machines here
    do it."""
    is_paced: bool = False
    """Whether it waits while its `run` is there and does not read: nothing is lost then. Only
    machines here and Pods do it."""


@dataclass(frozen=True, slots=True)
class Process:
    """A process started by a session. `exit_code` is None while it runs; after a signal it is 128
    plus the signal's number, which is in `signal` if it is known."""

    id: str
    pid: int
    arguments: tuple[str, ...]
    folder: str
    started_at: float
    tag: str | None = None
    is_terminal: bool = False
    is_program: bool = False
    exit_code: int | None = None
    ended_at: float | None = None
    signal: int | None = None

    @property
    def is_running(self) -> bool:
        return self.exit_code is None


@dataclass(frozen=True, slots=True)
class Output:
    """Part of a process's output. `offset` is where the next read starts; `skipped` is how much
    before `begins_at` is no longer stored."""

    stream: Stream
    data: bytes
    offset: int
    skipped: int = 0


def command_message(command: Command) -> dict[str, Any]:
    """The command as it is sent into a machine. Raises CommandRefusedError, InvalidPathError."""
    _check_command(command)
    size = command.terminal
    return {
        "arguments": list(command.arguments),
        "environment": dict(command.environment),
        "folder": absolute_path(command.folder),
        "terminal": [size.columns, size.rows] if size else None,
        "has_input": command.has_input,
        "tag": command.tag,
        "program": command.program,
        "unattended_sec": command.unattended_sec,
        "is_paced": command.is_paced,
    }


def _check_command(command: Command) -> None:
    names, values = command.environment.keys(), command.environment.values()
    is_text = not any("\0" in word for word in (*command.arguments, *names, *values))
    if not command.arguments or not is_text or any(not name or "=" in name for name in names):
        raise CommandRefusedError(
            "A command needs a program, arguments without NUL, and named variables."
        )


def absolute_path(path: str) -> str:
    """The path inside, from the workspace unless it is absolute. Raises InvalidPathError."""
    whole = path if path.startswith("/") else f"{WORKSPACE}/{path}"
    is_text = not any(0xD800 <= ord(character) <= 0xDFFF for character in path)
    if not path or "\0" in path or not is_text or len(whole.encode()) > _LONGEST_PATH:
        raise InvalidPathError(path)
    return whole
