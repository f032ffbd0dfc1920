"""The interface of a session in a running machine."""

from asyncio import Event, StreamReader, StreamWriter
from collections.abc import AsyncGenerator, AsyncIterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from sandyard.runtime.model import FileChanges
from sandyard.runtime.sessions.model import (
    EVERYTHING,
    Command,
    FileChange,
    FileInfo,
    FileSelection,
    Output,
    Process,
    TerminalSize,
)


class BasicFiles(Protocol):
    """The files of a machine, as its ordinary user sees them: one at a time.

    A path is absolute or relative to the workspace. Links are followed inside the machine and lead
    nowhere else. Every method raises InvalidPathError for an invalid path, FileMissingError,
    FileRefusedError if the user's rights or the kind of file do not allow it, StorageFullError,
    NotRunningError once the machine has ended, and UnavailableError if it can't be reached.
    """

    async def stat(self, path: str) -> FileInfo:
        """The entry at the path; for a link, the link itself."""

    async def list(
        self, path: str, *, depth: int = 1, selection: FileSelection = EVERYTHING
    ) -> Sequence[FileInfo]:
        """The entries of the folder and of its subfolders down to `depth`, sorted by path. Links
        are not followed, and unreadable subfolders are listed without their contents. Raises
        TooManyFilesError for more than 10,000, with a `limit` for a folder of more than 100,000,
        and for names and attributes of more than 2 MiB."""

    def read(self, path: str, *, offset: int = 0, limit: int | None = None) -> AsyncIterator[bytes]:
        """The content of a file from `offset` on, in pieces, at most `limit` bytes of it. Errors
        are raised by the first step."""

    async def write(
        self, path: str, content: AsyncIterator[bytes], *, mode: int | None = None
    ) -> FileInfo:
        """Replace or create the file, with its parent folders, atomically."""

    async def set_attributes(self, path: str, attributes: Mapping[str, str]) -> FileInfo:
        """Set these on a file or folder, as extended attributes of its user's namespace; they move
        with it. FileRefusedError if its file system does not support them."""

    async def make_folder(self, path: str) -> bool:
        """Make the folder and its parents; returns whether it is new."""

    async def move(self, source: str, target: str) -> FileInfo:
        """Rename; a file at the target is replaced, a folder there must be empty."""

    async def remove(self, path: str) -> None:
        """Remove the file, the link or the folder with everything in it."""

    def watch(
        self, path: str, *, recursive: bool = False, ready: Event | None = None
    ) -> AsyncIterator[FileChange]:
        """The changes in the folder from the first step on, until the machine ends. `ready` is set
        once no change is missed."""


class Files(BasicFiles, Protocol):
    """Many files at once, too."""

    async def apply(self, changes: FileChanges) -> None:
        """Update files of the workspace, deletions first, each file atomically; folders that become
        empty are removed. No path passes through a link. Raises UnsafePathError."""

    def read_tar(self, path: str) -> AsyncIterator[bytes]:
        """The folder and its content as a tar archive, with names relative to the folder."""

    async def write_tar(self, path: str, content: AsyncIterator[bytes]) -> None:
        """Unpack a tar archive into the folder, which is created if missing. No entry leaves the
        folder. Raises InvalidArchiveError; what was unpacked before stays."""


class Processes(Protocol):
    """The processes that sessions started in a machine, listed for as long as it runs.

    A process survives the session, the connection and the server that started it. Its output can be
    read by its id from any offset, without gaps or repeats in what is still stored. Methods that
    take an id raise ProcessNotFoundError; all raise NotRunningError and UnavailableError.
    """

    async def start(self, command: Command) -> Process:
        """Raises CommandRefusedError if it can't be run: no such program, folder or user."""

    def run(self, command: Command) -> AsyncGenerator[Process | Output]:
        """Start it, and follow it to its end: yields the process, its output, and the process as it
        ended, in this order. It keeps running if nobody listens. Raises CommandRefusedError."""

    async def list(self) -> Sequence[Process]:
        """All processes, including some ended ones, oldest first."""

    async def get(self, process_id: str) -> Process: ...

    async def wait(self, process_id: str, *, timeout_sec: float | None = None) -> Process:
        """The process once it has ended; on timeout, its current state."""

    def output(
        self, process_id: str, *, offset: int = 0, follow: bool = False
    ) -> AsyncGenerator[Output]:
        """Its output from `offset` on; with `follow`, until it has ended and all output was
        returned."""

    async def write_input(self, process_id: str, data: bytes) -> None:
        """Return when the process's input has accepted it. Raises InputClosedError;
        InputNotTakenError if the process does not read for long."""

    async def close_input(self, process_id: str) -> None: ...

    async def resize(self, process_id: str, size: TerminalSize) -> None:
        """Raises NotATerminalError."""

    async def signal(self, process_id: str, number: int) -> None:
        """Send a signal to the process and its group; nothing if it has ended."""


@dataclass(frozen=True, slots=True)
class PortConnection:
    """A connection to a port inside. `host` is the name that the far side expects in a request,
    None if it accepts any."""

    reader: StreamReader
    writer: StreamWriter
    host: str | None = None


class Ports(Protocol):
    """The listening ports of a machine."""

    async def listening(self) -> Sequence[int]:
        """The listening TCP ports, sorted."""

    async def connect(self, port: int) -> PortConnection:
        """Raises PortClosedError if nothing listens there."""


class Session(Protocol):
    """A session in one running machine."""

    @property
    def files(self) -> Files: ...

    @property
    def processes(self) -> Processes: ...

    @property
    def ports(self) -> Ports: ...

    def as_root(self, *, for_user: bool = False) -> "Session | None":
        """A session as root for files and processes; None if the machine has no root. With
        `for_user`, files and folders that it makes belong to the user."""


async def run_in_steps(processes: Processes, command: Command) -> AsyncGenerator[Process | Output]:
    """`Processes.run` for sessions without a shorter way."""
    process = await processes.start(command)
    yield process
    async for output in processes.output(process.id, follow=True):
        yield output
    yield await processes.wait(process.id)
