"""`ports.Session` into a machine here: asks its supervisor, and uses the descriptors it gets."""

import asyncio
import io
import json
import os
import socket
import tarfile
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import suppress
from typing import Any

from sandyard.runtime import errors
from sandyard.runtime.errors import AgentFailedError
from sandyard.runtime.local.client.session_processes import LocalProcesses
from sandyard.runtime.local.client.supervisor_client import MachineClient
from sandyard.runtime.local.ipc.packets import END, Packet, readable, writable
from sandyard.runtime.local.jail.isolation import UID_INSIDE
from sandyard.runtime.model import FileChanges, path_parts
from sandyard.runtime.sessions.model import (
    EVERYTHING,
    FileChange,
    FileInfo,
    FileSelection,
    absolute_path,
)
from sandyard.runtime.sessions.ports import PortConnection

_READ_BYTES = 1 << 20
_LINE_BYTES = 1 << 20
_LISTING_BYTES = 16 << 20
_PIECE_BYTES = 1 << 20


class LocalSession:
    def __init__(
        self, client: MachineClient, *, has_root: bool = False, owner: int | None = None
    ) -> None:
        self._client = client
        self._has_root = has_root
        self.files = LocalFiles(client, owner)
        self.processes = LocalProcesses(client, client.of_root() if has_root else None)
        self.ports = LocalPorts(client)

    def as_root(self, *, for_user: bool = False) -> "LocalSession | None":
        if not self._has_root:
            return None
        owner = UID_INSIDE if for_user else None
        return LocalSession(self._client.of_root(), has_root=True, owner=owner)


class LocalFiles:
    def __init__(self, client: MachineClient, owner: int | None = None) -> None:
        """`owner` gets the files that root makes."""
        self._client = client
        self._given = {} if owner is None else {"owner": owner}

    async def stat(self, path: str) -> FileInfo:
        packet = await self._client.ask("stat_file", {"path": absolute_path(path)})
        return _info(packet)

    async def list(
        self, path: str, *, depth: int = 1, selection: FileSelection = EVERYTHING
    ) -> Sequence[FileInfo]:
        arguments = {"path": absolute_path(path), "depth": depth, **selection.arguments()}
        packet = await self._client.ask("list_folder", arguments)
        [pipe] = packet.descriptors
        content = bytearray()
        async for piece in whole_content(pipe):
            content += piece
            if len(content) > _LISTING_BYTES:  # a machine is not trusted with its own limit
                raise errors.TooManyFilesError
        return await asyncio.to_thread(_infos, content)

    async def read(
        self, path: str, *, offset: int = 0, limit: int | None = None
    ) -> AsyncIterator[bytes]:
        packet = await self._client.ask("open_file", {"path": absolute_path(path)})
        [descriptor] = packet.descriptors
        try:
            left = limit
            while left is None or left > 0:
                most = _READ_BYTES if left is None else min(left, _READ_BYTES)
                piece = await asyncio.to_thread(os.pread, descriptor, most, offset)
                if not piece:
                    return
                offset += len(piece)
                left = None if left is None else left - len(piece)
                yield piece
        finally:
            os.close(descriptor)

    async def write(
        self, path: str, content: AsyncIterator[bytes], *, mode: int | None = None
    ) -> FileInfo:
        async with self._client.open() as request:
            arguments = {"path": absolute_path(path), "mode": mode, **self._given}
            packet = await request("create_file", arguments)
            [descriptor] = packet.descriptors
            try:
                await _write_pieces(descriptor, content, most=packet.message["most_bytes"])
            finally:
                os.close(descriptor)
            return _info(await request("commit_file", packet.message["result"]))

    async def set_attributes(self, path: str, attributes: Mapping[str, str]) -> FileInfo:
        arguments = {"path": absolute_path(path), "attributes": dict(attributes)}
        return _info(await self._client.ask("set_attributes", arguments))

    async def apply(self, changes: FileChanges) -> None:
        for path in (*changes.deleted, *changes.written):
            path_parts(path)
        arguments = {"deleted": sorted(changes.deleted)}
        await self._send_archive("apply", arguments, _in_pieces(_packed(changes.written)))

    async def make_folder(self, path: str) -> bool:
        arguments = {"path": absolute_path(path), **self._given}
        packet = await self._client.ask("make_folder", arguments)
        return bool(packet.message["result"])

    async def move(self, source: str, target: str) -> FileInfo:
        arguments = {"source": absolute_path(source), "target": absolute_path(target)}
        return _info(await self._client.ask("move", arguments))

    async def remove(self, path: str) -> None:
        await self._client.ask("remove", {"path": absolute_path(path)})

    async def read_tar(self, path: str) -> AsyncIterator[bytes]:
        packet = await self._client.ask("read_tar", {"path": absolute_path(path)})
        [pipe] = packet.descriptors
        async for piece in whole_content(pipe):
            yield piece

    async def write_tar(self, path: str, content: AsyncIterator[bytes]) -> None:
        await self._send_archive("write_tar", {"path": absolute_path(path)}, content)

    async def _send_archive(
        self, operation: str, arguments: dict[str, Any], content: AsyncIterator[bytes]
    ) -> None:
        reader, writer = os.pipe2(os.O_CLOEXEC)
        feeding = asyncio.ensure_future(_feed(writer, content))
        try:
            await self._client.ask(operation, arguments, descriptors=(reader,))
        finally:
            os.close(reader)  # a remaining writer gets a broken pipe
            await feeding

    async def watch(
        self, path: str, *, recursive: bool = False, ready: asyncio.Event | None = None
    ) -> AsyncIterator[FileChange]:
        arguments = {"path": absolute_path(path), "recursive": recursive}
        packet = await self._client.ask("watch", arguments)
        [pipe] = packet.descriptors
        if ready is not None:
            ready.set()
        async for line in lines_of(pipe):
            yield FileChange(**json.loads(line))


class LocalPorts:
    def __init__(self, client: MachineClient) -> None:
        self._client = client

    async def listening(self) -> Sequence[int]:
        return [int(port) for port in (await self._client.ask("ports", {})).message["result"]]

    async def connect(self, port: int) -> PortConnection:
        packet = await self._client.ask("connect", {"port": port})
        [descriptor] = packet.descriptors
        made = socket.socket(fileno=descriptor)
        try:
            await _until_connected(made)
            return PortConnection(*await asyncio.open_connection(sock=made))
        except BaseException as error:
            made.close()
            if isinstance(error, OSError):
                raise errors.PortClosedError from error
            raise


async def _write_pieces(descriptor: int, content: AsyncIterator[bytes], *, most: int) -> None:
    try:
        async for piece in content:
            most -= len(piece)
            if most < 0:
                raise errors.StorageFullError
            await asyncio.to_thread(_write_all, descriptor, piece)
    except OSError as error:
        if error.errno in errors.STORAGE_FULL:
            raise errors.StorageFullError from error
        raise


async def _feed(writer: int, content: AsyncIterator[bytes]) -> None:
    """Write until all is taken or the reader is gone; the reason is then reported elsewhere."""
    os.set_blocking(writer, False)
    try:
        with suppress(BrokenPipeError):
            async for piece in content:
                await write_whole(writer, piece)
    finally:
        os.close(writer)


def _packed(files: Mapping[str, bytes]) -> bytes:
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w") as archive:
        for path, content in files.items():
            entry = tarfile.TarInfo(path)
            entry.size = len(content)
            archive.addfile(entry, io.BytesIO(content))
    return packed.getvalue()


async def _in_pieces(content: bytes) -> AsyncIterator[bytes]:
    for begin in range(0, len(content), _READ_BYTES):
        yield content[begin : begin + _READ_BYTES]


def _write_all(descriptor: int, piece: bytes) -> None:
    view = memoryview(piece)
    while view:
        view = view[os.write(descriptor, view) :]


async def _until_connected(made: socket.socket) -> None:
    made.settimeout(0)
    await writable(made.fileno())
    if number := made.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR):
        raise OSError(number, os.strerror(number))


def _infos(content: bytearray) -> list[FileInfo]:
    return [FileInfo(**json.loads(line)) for line in content.splitlines()]


def _info(packet: Packet) -> FileInfo:
    return FileInfo(**packet.message["result"])


async def lines_of(pipe: int) -> AsyncIterator[bytes]:
    reader = asyncio.StreamReader(limit=_LINE_BYTES)
    transport, _ = await asyncio.get_running_loop().connect_read_pipe(
        lambda: asyncio.StreamReaderProtocol(reader), os.fdopen(pipe, "rb", buffering=0)
    )
    try:
        while line := await reader.readline():
            yield line
    finally:
        transport.close()


async def whole_content(pipe: int) -> AsyncIterator[bytes]:
    """The content up to `END`. Raises AgentFailedError if it ends before that."""
    last = b""
    async for piece in _pieces(pipe):
        if before := last + piece[:-1]:
            yield before
        last = piece[-1:]
    if last != END:
        raise AgentFailedError(reason="the machine's response is incomplete")


async def _pieces(pipe: int) -> AsyncIterator[bytes]:
    os.set_blocking(pipe, False)
    try:
        while True:
            try:
                piece = os.read(pipe, _PIECE_BYTES)
            except BlockingIOError:
                await readable(pipe)
                continue
            if not piece:
                return
            yield piece
            await asyncio.sleep(0)
    finally:
        os.close(pipe)


async def write_whole(pipe: int, piece: bytes) -> None:
    """Write to a nonblocking pipe. Raises OSError if its reader is gone."""
    left = memoryview(piece)
    while left:
        try:
            left = left[os.write(pipe, left) :]
        except BlockingIOError:
            await writable(pipe)
