"""`session_ports.Files` of a machine at E2B."""

import asyncio
import base64
import json
from collections.abc import AsyncGenerator, AsyncIterator, Mapping, Sequence
from contextlib import aclosing
from secrets import token_hex
from typing import TYPE_CHECKING, Any

from sandyard.runtime.e2b.errors import E2bUnavailableError
from sandyard.runtime.errors import FileMissingError, FileRefusedError
from sandyard.runtime.model import FileChanges
from sandyard.runtime.remote.connection import HOME, Channel, reading_answer
from sandyard.runtime.remote.guest_code import STATE
from sandyard.runtime.sessions.model import (
    WORKSPACE,
    ChangeKind,
    FileChange,
    FileInfo,
    absolute_path,
)

if TYPE_CHECKING:
    from e2b import FilesystemEvent

_EVENTS_AHEAD = 1024
_CHANGES: dict[str, ChangeKind] = {
    "create": "created",
    "write": "written",
    "remove": "removed",
    "rename": "renamed",
    "chmod": "attributes",
}


class E2bFiles:
    def __init__(self, channel: Channel) -> None:
        self._channel = channel

    async def stat(self, path: str) -> FileInfo:
        return _info(await self._channel.ask("stat_file", path=absolute_path(path)))

    async def list(self, path: str, *, depth: int = 1) -> Sequence[FileInfo]:
        entries = self._channel.stream("list_folder", path=absolute_path(path), depth=depth)
        return [_info(entry) async for entry in entries]

    async def read(
        self, path: str, *, offset: int = 0, limit: int | None = None
    ) -> AsyncIterator[bytes]:
        """E2B sends a file from its beginning; what is before the offset is dropped here."""
        file = str(await self._channel.ask("check_readable", path=absolute_path(path)))
        async with aclosing(self._download(file)) as pieces:
            async for piece in pieces:
                if limit is not None and limit <= 0:
                    return
                kept = piece[offset:][:limit]
                offset = max(0, offset - len(piece))
                limit = None if limit is None else limit - len(kept)
                if kept:
                    yield kept

    async def write(
        self, path: str, content: AsyncIterator[bytes], *, mode: int | None = None
    ) -> FileInfo:
        whole = absolute_path(path)
        draft = await self._channel.send(content)
        return _info(await self._channel.ask("put_file", draft=draft, path=whole, mode=mode))

    async def set_attributes(self, path: str, attributes: Mapping[str, str]) -> FileInfo:
        whole, given = absolute_path(path), dict(attributes)
        return _info(await self._channel.ask("set_attributes", path=whole, attributes=given))

    async def apply(self, changes: FileChanges) -> None:
        incoming = f"{STATE}/incoming/{token_hex(8)}"
        written = sorted(changes.written)
        files = {f"{incoming}/{n}": changes.written[path] for n, path in enumerate(written)}
        paths = {"written": written, "deleted": sorted(changes.deleted)}
        files[f"{incoming}/paths.json"] = json.dumps(paths).encode()
        await self._channel.upload(files)
        await self._channel.ask("apply", incoming=f"{HOME}/{incoming}")

    async def make_folder(self, path: str) -> bool:
        return bool(await self._channel.ask("make_folder", path=absolute_path(path)))

    async def move(self, source: str, target: str) -> FileInfo:
        source, target = absolute_path(source), absolute_path(target)
        return _info(await self._channel.ask("move", source=source, target=target))

    async def remove(self, path: str) -> None:
        await self._channel.ask("remove", path=absolute_path(path))

    async def read_tar(self, path: str) -> AsyncIterator[bytes]:
        async with aclosing(self._channel.stream("pack", path=absolute_path(path))) as pieces:
            async for piece in pieces:
                with reading_answer():
                    data = base64.b64decode(piece)
                yield data

    async def write_tar(self, path: str, content: AsyncIterator[bytes]) -> None:
        whole = absolute_path(path)
        archive = await self._channel.send(content)
        await self._channel.ask("unpack", archive=archive, path=whole)

    async def watch(
        self, path: str, *, recursive: bool = False, ready: asyncio.Event | None = None
    ) -> AsyncIterator[FileChange]:
        whole = absolute_path(path)
        events: asyncio.Queue[FilesystemEvent | None] = asyncio.Queue(_EVENTS_AHEAD)
        failures: list[Exception | None] = []

        async def end(error: Exception | None) -> None:
            failures.append(error)
            await events.put(None)

        watching = await self._watch(whole, events, end, recursive=recursive)
        if ready is not None:
            ready.set()
        try:
            while (event := await events.get()) is not None:
                yield FileChange(f"{whole.rstrip('/')}/{event.name}", _CHANGES[event.type.value])
        finally:
            await watching.stop()
        async with self._channel.reaching(sends=False):
            raise failures[0] or E2bUnavailableError(reason="the watch ended")

    async def _watch(
        self,
        path: str,
        events: "asyncio.Queue[FilesystemEvent | None]",
        end: Any,
        *,
        recursive: bool,
    ) -> Any:
        from e2b import FileNotFoundException, InvalidArgumentException

        async with self._channel.reaching():
            try:
                return await self._channel.sandbox.files.watch_dir(
                    _in_machine(path), events.put, end, timeout=0, recursive=recursive
                )
            except FileNotFoundException as error:
                raise FileMissingError from error
            except InvalidArgumentException as error:
                raise FileRefusedError from error

    async def _download(self, file: str) -> AsyncGenerator[bytes]:
        from e2b import FileNotFoundException

        async with self._channel.reaching():
            try:
                pieces = await self._channel.sandbox.files.read(file, format="stream")
            except FileNotFoundException as error:
                raise FileMissingError from error
        reading = aiter(pieces)
        while True:
            async with self._channel.reaching(sends=False):
                try:
                    piece = await anext(reading)
                except StopAsyncIteration:
                    return
            yield bytes(piece)


def _in_machine(path: str) -> str:
    is_workspace = path == WORKSPACE or path.startswith(f"{WORKSPACE}/")
    return f"{HOME}{path}" if is_workspace else path


def _info(answer: Any) -> FileInfo:
    with reading_answer():
        target = answer["target"]
        return FileInfo(
            path=str(answer["path"]),
            kind=answer["kind"],
            size_bytes=int(answer["size_bytes"]),
            mode=int(answer["mode"]),
            modified_at=float(answer["modified_at"]),
            target=None if target is None else str(target),
            attributes=dict(answer["attributes"]),
        )
