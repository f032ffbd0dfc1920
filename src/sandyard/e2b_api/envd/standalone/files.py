"""`BasicFiles` of the machine that this process runs in, by the operations of the local agent."""

import asyncio
import errno
import json
import os
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from threading import Thread
from typing import Any

from sandyard.runtime.errors import (
    FileMissingError,
    FileRefusedError,
    StorageFullError,
    TooManyFilesError,
)
from sandyard.runtime.guest import RefusedError
from sandyard.runtime.guest.paths import Paths
from sandyard.runtime.local.agent import files as agent_files
from sandyard.runtime.local.agent.answers import Answer
from sandyard.runtime.local.agent.watch import watch
from sandyard.runtime.sessions.model import WORKSPACE, FileChange, FileInfo, absolute_path

_PATHS = Paths(WORKSPACE)
"""All paths are this machine's own."""
_FULL = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG})
_PIECE_BYTES = 1 << 20


class SystemFiles:
    """With the rights of this process."""

    async def stat(self, path: str) -> FileInfo:
        return await _file(agent_files.stat_file, path=absolute_path(path))

    async def list(self, path: str, *, depth: int = 1) -> Sequence[FileInfo]:
        found = await _call(agent_files.list_folder, path=absolute_path(path), depth=depth)
        return [FileInfo(**json.loads(line)) for line in await asyncio.to_thread(_lines, found)]

    async def read(
        self, path: str, *, offset: int = 0, limit: int | None = None
    ) -> AsyncIterator[bytes]:
        [descriptor] = (await _call(agent_files.open_file, path=absolute_path(path))).descriptors
        try:
            end = None if limit is None else offset + limit
            while end is None or offset < end:
                most = _PIECE_BYTES if end is None else min(end - offset, _PIECE_BYTES)
                piece = await asyncio.to_thread(os.pread, descriptor, most, offset)
                if not piece:
                    return
                offset += len(piece)
                yield piece
        finally:
            os.close(descriptor)

    async def write(
        self, path: str, content: AsyncIterator[bytes], *, mode: int | None = None
    ) -> FileInfo:
        draft = await _call(agent_files.create_file, path=absolute_path(path), mode=mode)
        try:
            with os.fdopen(draft.descriptors[0], "wb", buffering=0) as file:
                async for piece in content:
                    with _errors():
                        await asyncio.to_thread(_write_all, file.fileno(), piece)
            return await _file(agent_files.commit_file, **draft.result)
        except BaseException:
            with suppress(OSError):
                agent_files.discard_file(_PATHS, draft=draft.result["draft"])
            raise

    async def set_attributes(self, path: str, attributes: Mapping[str, str]) -> FileInfo:
        whole = absolute_path(path)
        return await _file(agent_files.set_attributes, path=whole, attributes=dict(attributes))

    async def make_folder(self, path: str) -> bool:
        made = await _call(agent_files.make_folder, path=absolute_path(path))
        return bool(made.result)

    async def move(self, source: str, target: str) -> FileInfo:
        ends = {"source": absolute_path(source), "target": absolute_path(target)}
        return await _file(agent_files.move, **ends)

    async def remove(self, path: str) -> None:
        await _call(agent_files.remove, path=absolute_path(path))

    async def watch(
        self, path: str, *, recursive: bool = False, ready: asyncio.Event | None = None
    ) -> AsyncIterator[FileChange]:
        watched = await _call(watch, path=absolute_path(path), recursive=recursive)
        Thread(target=_run, args=[watched], daemon=True).start()
        if ready is not None:
            ready.set()
        reader = asyncio.StreamReader()
        transport, _ = await asyncio.get_running_loop().connect_read_pipe(
            lambda: asyncio.StreamReaderProtocol(reader), os.fdopen(watched.descriptors[0], "rb")
        )
        try:
            async for line in reader:
                yield FileChange(**json.loads(line))
        finally:
            transport.close()


async def _file(operation: Any, **arguments: Any) -> FileInfo:
    return FileInfo(**(await _call(operation, **arguments)).result)


async def _call(operation: Any, **arguments: Any) -> Answer:
    with _errors():
        answer: Answer = await asyncio.to_thread(operation, _PATHS, **arguments)
    return answer


@contextmanager
def _errors() -> Iterator[None]:
    """The system's errors, as a session reports them."""
    try:
        yield
    except RefusedError as error:
        raise TooManyFilesError from error
    except FileNotFoundError as error:
        raise FileMissingError from error
    except OSError as error:
        if error.errno in _FULL:
            raise StorageFullError from error
        raise FileRefusedError(f"The system refused this: {error.strerror}.") from error


def _run(watched: Answer) -> None:
    """Return when the reader of its pipe is gone."""
    with suppress(BrokenPipeError):
        assert watched.then is not None  # noqa: S101 - it follows every watch
        watched.then()


def _lines(listed: Answer) -> Sequence[bytes]:
    writing = Thread(target=listed.then)
    writing.start()
    with os.fdopen(listed.descriptors[0], "rb") as pipe:
        *lines, _end = pipe.read().split(b"\n")
    writing.join()
    return lines


def _write_all(descriptor: int, piece: bytes) -> None:
    left = memoryview(piece)
    while left:
        left = left[os.write(descriptor, left) :]
