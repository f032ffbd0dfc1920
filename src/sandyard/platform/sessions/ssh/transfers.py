"""Files of a sandbox that are read or written piece by piece, in order."""

import asyncio
import posixpath
import stat
from collections.abc import AsyncGenerator, Iterator
from contextlib import contextmanager

import asyncssh

from sandyard.kit.errors import SandyardError
from sandyard.runtime.errors import FileMissingError, FileRefusedError
from sandyard.runtime.sessions.model import WORKSPACE, FileInfo
from sandyard.runtime.sessions.ports import Files

_KINDS = {
    "file": (asyncssh.FILEXFER_TYPE_REGULAR, stat.S_IFREG),
    "folder": (asyncssh.FILEXFER_TYPE_DIRECTORY, stat.S_IFDIR),
    "link": (asyncssh.FILEXFER_TYPE_SYMLINK, stat.S_IFLNK),
    "other": (asyncssh.FILEXFER_TYPE_SPECIAL, 0),
}
_WAITING_BYTES = 256 * 1024


@contextmanager
def as_sftp() -> Iterator[None]:
    """Errors as SFTP knows them."""
    try:
        yield
    except FileMissingError as error:
        raise asyncssh.SFTPNoSuchFile(error.message) from error
    except FileRefusedError as error:
        raise asyncssh.SFTPPermissionDenied(error.message) from error
    except SandyardError as error:
        raise asyncssh.SFTPFailure(error.message) from error


def text_of(path: bytes) -> str:
    """The absolute path inside."""
    try:
        return posixpath.normpath(posixpath.join(WORKSPACE, path.decode()))
    except UnicodeDecodeError as error:
        raise asyncssh.SFTPInvalidFilename("Names are UTF-8 here.") from error


def relative_to_workspace(path: bytes) -> str:
    """For commands, which run there; it never looks like an option."""
    return f"./{posixpath.relpath(text_of(path), WORKSPACE)}"


def attributes_of(info: FileInfo) -> asyncssh.SFTPAttrs:
    kind, bits = _KINDS[info.kind]
    return asyncssh.SFTPAttrs(
        type=kind,
        size=info.size_bytes,
        permissions=bits | info.mode,
        uid=info.uid or 0,
        gid=info.gid or 0,
        atime=int(info.modified_at),
        mtime=int(info.modified_at),
    )


class Reading:
    """Reads ahead; another offset than the next one begins again."""

    def __init__(self, files: Files, path: str) -> None:
        self.path = path
        self._files = files
        self._next = 0
        self._left = memoryview(b"")
        self._pieces: AsyncGenerator[bytes] | None = None

    async def read(self, offset: int, size: int) -> bytes:
        """Fewer than `size` bytes only at the end: clients expect that of files."""
        if self._pieces is None or offset != self._next:
            await self.close()
            self._pieces, self._next = _pieces(self._files, self.path, offset), offset
        data = b""
        while len(data) < size:
            if not self._left:
                self._left = memoryview(await anext(self._pieces, b""))
            if not self._left:
                break
            taken = size - len(data)
            data += self._left[:taken]
            self._left = self._left[taken:]
        self._next += len(data)
        return data

    async def close(self, *, is_complete: bool = True) -> None:  # noqa: ARG002 - as of a writing
        self._left = memoryview(b"")
        if self._pieces is not None:
            await self._pieces.aclose()


class Writing:
    """Replaces one range of a file, or all of it; the file changes when it is closed."""

    def __init__(
        self, files: Files, path: str, mode: int | None, *, kept: int, appends: bool
    ) -> None:
        """`kept` is the size of the file that is there, if it is kept around the range."""
        self.path = path
        self.attributes: asyncssh.SFTPAttrs | None = None
        """To be set afterwards."""
        self._files = files
        self._kept = kept
        self._appends = appends
        self._begin = kept if appends else 0
        self._written = 0
        self._waiting: list[bytes] = []
        self._waiting_bytes = 0
        self._is_over = False
        self._changed = asyncio.Event()
        self._mode = mode
        self._task: asyncio.Task[FileInfo] | None = None

    async def write(self, offset: int, data: bytes) -> None:
        if not self._written and not self._appends:
            self._begin = min(offset, self._kept)
        if offset != self._begin + self._written and not self._appends:
            raise asyncssh.SFTPOpUnsupported("Files are written in order here.")
        self._written += len(data)
        task = self._start()
        while self._waiting_bytes >= _WAITING_BYTES and not task.done():
            await self._change()
        if task.done():
            await task
        self._waiting.append(data)
        self._waiting_bytes += len(data)
        self._changed.set()

    async def close(self, *, is_complete: bool) -> None:
        task = self._start()
        if not is_complete:
            task.cancel()
            await asyncio.wait({task})
            return
        self._is_over = True
        self._changed.set()
        await task

    def _start(self) -> asyncio.Task[FileInfo]:
        if self._task is None:
            content = self._content()
            self._task = asyncio.create_task(self._files.write(self.path, content, mode=self._mode))
            self._task.add_done_callback(lambda _task: self._changed.set())
        return self._task

    async def _content(self) -> AsyncGenerator[bytes]:
        if self._begin:
            async for piece in self._files.read(self.path, limit=self._begin):
                yield piece
        while self._waiting or not self._is_over:
            data, self._waiting, self._waiting_bytes = b"".join(self._waiting), [], 0
            self._changed.set()
            if data:
                yield data
            elif not self._is_over:
                await self._change()
        end = self._begin + self._written
        if end < self._kept:
            async for piece in self._files.read(self.path, offset=end):
                yield piece

    async def _change(self) -> None:
        self._changed.clear()
        await self._changed.wait()


async def _pieces(files: Files, path: str, offset: int) -> AsyncGenerator[bytes]:
    async for piece in files.read(path, offset=offset):
        yield piece
