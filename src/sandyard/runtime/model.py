"""What a runtime runs, in which state, and the pure decisions about it."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal, get_args

from sandyard.kit.lines import LineReader
from sandyard.runtime.errors import InvalidRunIdError, UnsafePathError
from sandyard.runtime.guest.program import ProgramPolicy, ProgramState
from sandyard.runtime.network_model import NO_RULES, EgressRules, Network
from sandyard.runtime.secrets_model import NO_SECRETS, MachineSecrets

Kind = Literal["sandbox", "preview", "warm", "files"]
"""What a run belongs to; a warm one has no owner yet, and `files` is for one call about those of a
stopped sandbox."""
EndReason = Literal[
    "stopped",
    "terminated",
    "timeout",
    "exited",
    "out_of_memory",
    "out_of_storage",
    "disk_full",
    "killed",
    "not_started",
]
"""`stopped` was requested; `terminated` means SIGTERM without a request, as at a shutdown of its
host."""

LOG_LINE_BYTES = 64 * 1024
"""The longest line of a log; longer ones are cut into several."""
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,63}")
_PROCFILE_LINE = re.compile(r"^([A-Za-z0-9_-]+):[ \t]*(\S.*?)\s*$", re.MULTILINE)
_LONGEST_PATH = 1024
_DEEPEST_PATH = 32


IsolationMode = Literal["none", "bubblewrap", "gvisor"]
"""What isolates a machine's programs, the weakest first."""
GvisorPlatform = Literal["systrap", "kvm"]
"""How its kernel gets control: by signals of the host's, or by the processor's virtualization."""


@dataclass(frozen=True, slots=True)
class RunId:
    """Identifies one run of a program. A new attempt is a new run, even of the same sandbox."""

    kind: Kind
    id: str
    attempt: str

    def __post_init__(self) -> None:
        if self.kind not in get_args(Kind):
            raise InvalidRunIdError
        if not (_NAME.fullmatch(self.id) and _NAME.fullmatch(self.attempt)):
            raise InvalidRunIdError

    @classmethod
    def of(cls, text: str) -> "RunId":
        """From its `str`. Raises InvalidRunIdError."""
        kind, run, attempt = text.split(".")
        return cls(kind, run, attempt)  # type: ignore[arg-type]

    def __str__(self) -> str:
        return f"{self.kind}.{self.id}.{self.attempt}"


@dataclass(frozen=True, slots=True)
class Repository:
    """A git repository: `https://…`, or `builtin:<name>` for one that ships with the product."""

    url: str
    ref: str | None = None
    """A branch or a tag; None is the default branch."""
    folder: str | None = None
    """The program's folder in it; None is the top."""
    token: str | None = field(default=None, repr=False)
    """For a private one: a token, or `user:token`."""


@dataclass(frozen=True, slots=True)
class Files:
    """Files by their path. Without a Procfile they are served as a static site."""

    contents: Mapping[str, bytes]


@dataclass(frozen=True, slots=True)
class ImageProgram:
    """The program is what the image of the root file system runs."""


@dataclass(frozen=True, slots=True)
class StartCommand:
    """A line for bash in this folder, as `user` where it is None, as `root`, or as `uid:gid`."""

    line: str
    folder: str
    user: str | None = None


@dataclass(frozen=True, slots=True)
class EntryPoint:
    """What an image runs: in this folder, as this user and group, whose home is `home`. It listens
    on `port`, the first one that its image exposes."""

    arguments: Sequence[str]
    folder: str
    user: int
    group: int
    home: str
    port: int | None = None


@dataclass(frozen=True, slots=True)
class Mount:
    """A volume, and the folder inside where a machine has it."""

    volume_id: str
    path: str
    is_read_only: bool = False


@dataclass(frozen=True, slots=True)
class Program:
    """Where the code comes from; a snapshot, if there is one, is restored instead. Without a
    source there is nothing to run: the machine waits for commands."""

    source: Repository | Files | ImageProgram | StartCommand | None
    snapshot_id: str | None = None
    environment: Mapping[str, str] = field(default_factory=dict)
    network: Network = "none"
    root: str | None = None
    """Its root file system: an environment's name or an image's id; None is the host's own."""
    archive_id: str | None = None
    """The archive that provides its files, instead of the source."""
    rules: EgressRules = NO_RULES
    policy: ProgramPolicy = "on_failure"
    is_launched: bool = True
    """Whether it is started with its machine; if not, only its files are there."""
    restores_memory: bool = True
    """Whether its processes go on, if its files have them with them; not unless it is launched."""
    keeps_memory: bool = False
    """Whether its processes are kept at its deadline, if its isolation can keep them."""
    isolation: IsolationMode | None = None
    """The weakest that it may have; None is the runtime's own."""
    secrets: MachineSecrets = NO_SECRETS
    mounts: tuple[Mount, ...] = ()


@dataclass(frozen=True, slots=True)
class Limits:
    """Resource limits of one sandbox. `cpu` counts cores; where only whole cores can be given,
    fractions are not. `max_running_sec` counts from when it listens."""

    cpu: float
    memory_bytes: int
    processes: int
    storage_bytes: int
    max_running_sec: float


@dataclass(frozen=True, slots=True)
class Snapshot:
    id: str
    size_bytes: int
    created_at: float
    has_memory: bool = False
    """Whether it has the processes too."""


@dataclass(frozen=True, slots=True)
class Starting:
    run_id: RunId
    since_at: float


@dataclass(frozen=True, slots=True)
class Running:
    """A machine that can be entered, with the state of its program, if it has one. That is told to
    listen on `port`. `started_at` is when it was first started."""

    run_id: RunId
    port: int
    started_at: float
    deadline_at: float
    program: ProgramState | None = None
    isolation: IsolationMode | None = None
    """What its machine is isolated by; None if that is not this runtime's choice."""


@dataclass(frozen=True, slots=True)
class Up:
    """A machine that can be entered. `port` is the one its program is told to listen on."""

    run_id: RunId
    port: int
    created_at: float
    deadline_at: float
    isolation: IsolationMode | None = None
    is_resumed: bool = False
    """Whether its processes go on from its snapshot."""
    keeps_memory: bool = False
    """Whether its snapshot at its deadline has its processes."""


@dataclass(frozen=True, slots=True)
class Stopping:
    """It no longer serves; its end is being recorded and its snapshot taken. `message` says why it
    ends, once that is known."""

    run_id: RunId
    since_at: float
    message: str = ""


@dataclass(frozen=True, slots=True)
class Ended:
    """The end as its supervisor recorded it.

    `started_at` is when its program was first started, None if it never was. `not_started` never
    ran; `error_code` and `message` say why. `snapshot_error` says why there is no snapshot of one
    that ran.
    """

    run_id: RunId
    reason: EndReason
    ended_at: float
    started_at: float | None = None
    exit_code: int | None = None
    error_code: str | None = None
    message: str = ""
    snapshot: Snapshot | None = None
    snapshot_error: str | None = None
    memory_error: str | None = None
    """Why its processes are not in its snapshot, if they were to be."""

    @property
    def has_run(self) -> bool:
        return self.reason != "not_started"


RunState = Starting | Running | Stopping | Ended
MachineState = Starting | Up | Stopping | Ended


@dataclass(frozen=True, slots=True)
class MachineSpec:
    """The machine to make. Its deadline is `lifetime_sec` from now, until it is moved."""

    limits: Limits
    lifetime_sec: float
    snapshot_id: str | None = None
    network: Network = "none"
    root: str | None = None
    packed: Path | None = None
    """An archive packed by another machine, which it starts from if there is no snapshot."""
    rules: EgressRules = NO_RULES
    isolation: IsolationMode | None = None
    """The weakest that it may have; None is the runtime's own."""
    restores_memory: bool = True
    """Whether its processes go on, if what it starts from has them."""
    authority: str = ""
    """The certificate by which its programs trust its egress proxy, if that ends TLS."""
    mounts: tuple[Mount, ...] = ()


@dataclass(frozen=True, slots=True)
class Log:
    """Part of a program's output, from this byte on."""

    begins_at: int
    content: bytes


@dataclass(frozen=True, slots=True)
class Sample:
    """CPU time used so far by the process tree (`cpu_seconds`), and its current resources."""

    at: float
    cpu_seconds: float
    memory_bytes: int
    storage_bytes: int
    processes: int


@dataclass(frozen=True, slots=True)
class FileChanges:
    """Files to write and files to delete, by path; the deletions come first."""

    written: Mapping[str, bytes] = field(default_factory=dict)
    deleted: frozenset[str] = frozenset()


def stronger(first: IsolationMode, second: IsolationMode | None) -> IsolationMode:
    order = get_args(IsolationMode)
    return first if second is None else max(first, second, key=order.index)


def procfile_lines(procfile: str) -> Mapping[str, str]:
    """The commands by their names; of several with one name, the first."""
    found: list[tuple[str, str]] = _PROCFILE_LINE.findall(procfile)
    return dict(reversed(found))


def path_parts(path: str) -> tuple[str, ...]:
    """The parts of a path that stays inside the workspace, or UnsafePathError."""
    parts = tuple(path.split("/"))
    unsafe = (
        not path
        or "\0" in path
        or "\\" in path
        or len(path.encode(errors="surrogatepass")) > _LONGEST_PATH
        or len(parts) > _DEEPEST_PATH
        or any(part in ("", ".", "..") or _too_long(part) for part in parts)
        or any(0xD800 <= ord(character) <= 0xDFFF for character in path)
    )
    if unsafe:
        raise UnsafePathError(path)
    return parts


def _too_long(part: str) -> bool:
    return len(part.encode(errors="surrogatepass")) > 255


def log_line(line: bytes) -> str:
    return line.decode(errors="replace").rstrip("\r")


def last_lines(content: bytes, count: int) -> list[str]:
    """The last lines; a long one is cut into several."""
    reader = LineReader(LOG_LINE_BYTES)
    lines = [*reader.feed(content), *reader.end()]
    return [log_line(line) for line in lines[-count:]] if count > 0 else []
