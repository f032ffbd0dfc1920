"""`sessions.ports.Files` of a machine elsewhere."""

import asyncio
import base64
import json
from collections.abc import AsyncGenerator, AsyncIterator, Mapping, Sequence
from contextlib import aclosing
from secrets import token_hex
from typing import Any

from sandyard.runtime.errors import FileMissingError, FileRefusedError
from sandyard.runtime.guest import DRAFT
from sandyard.runtime.model import FileChanges
from sandyard.runtime.remote.connection import Connection, no_response
from sandyard.runtime.remote.errors import CallError
from sandyard.runtime.remote.guest import STATE
from sandyard.runtime.sessions.model import (
    EVERYTHING,
    WORKSPACE,
    ChangeKind,
    FileChange,
    FileInfo,
    FileSelection,
    absolute_path,
)

_CHANGES: dict[str, ChangeKind] = {
    "EVENT_TYPE_CREATE": "created",
    "EVENT_TYPE_WRITE": "written",
    "EVENT_TYPE_REMOVE": "removed",
    "EVENT_TYPE_RENAME": "renamed",
    "EVENT_TYPE_CHMOD": "attributes",
}


class RemoteFiles:
    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    async def stat(self, path: str) -> FileInfo:
        return await self._ask_info("stat_file", path=absolute_path(path))

    async def list(
        self, path: str, *, depth: int = 1, selection: FileSelection = EVERYTHING
    ) -> Sequence[FileInfo]:
        arguments = {"path": absolute_path(path), "depth": depth, **selection.arguments()}
        entries = self._connection.stream("list_folder", **arguments)
        return [self._info(entry) async for entry in entries]

    async def read(
        self, path: str, *, offset: int = 0, limit: int | None = None
    ) -> AsyncIterator[bytes]:
        """envd sends a file from its beginning; what is before the offset is dropped here."""
        file = str(await self._connection.ask("check_readable", path=absolute_path(path)))
        async with aclosing(self._download(file)) as pieces:
            async for piece in pieces:
                if limit is not None and limit <= 0:
                    return
                part = piece[offset:][:limit]
                offset = max(0, offset - len(piece))
                limit = None if limit is None else limit - len(part)
                if part:
                    yield part

    async def write(
        self, path: str, content: AsyncIterator[bytes], *, mode: int | None = None
    ) -> FileInfo:
        whole = absolute_path(path)
        upload = await self._connection.send(content)
        return await self._ask_info("put_file", upload=upload, path=whole, mode=mode)

    async def set_attributes(self, path: str, attributes: Mapping[str, str]) -> FileInfo:
        whole = absolute_path(path)
        return await self._ask_info("set_attributes", path=whole, attributes=dict(attributes))

    async def apply(self, changes: FileChanges) -> None:
        incoming = f"{STATE}/incoming/{token_hex(8)}"
        written = sorted(changes.written)
        files = {f"{incoming}/{n}": changes.written[path] for n, path in enumerate(written)}
        paths = {"written": written, "deleted": sorted(changes.deleted)}
        files[f"{incoming}/paths.json"] = json.dumps(paths).encode()
        await self._connection.upload(files)
        await self._connection.ask("apply", incoming=f"{self._connection.home}/{incoming}")

    async def make_folder(self, path: str) -> bool:
        return bool(await self._connection.ask("make_folder", path=absolute_path(path)))

    async def move(self, source: str, target: str) -> FileInfo:
        source, target = absolute_path(source), absolute_path(target)
        return await self._ask_info("move", source=source, target=target)

    async def remove(self, path: str) -> None:
        await self._connection.ask("remove", path=absolute_path(path))

    async def read_tar(self, path: str) -> AsyncIterator[bytes]:
        async with aclosing(
            self._connection.stream("read_tar", path=absolute_path(path))
        ) as pieces:
            async for piece in pieces:
                with self._connection.parsing():
                    data = base64.b64decode(piece)
                yield data

    async def write_tar(self, path: str, content: AsyncIterator[bytes]) -> None:
        whole = absolute_path(path)
        upload = await self._connection.send(content)
        await self._connection.ask("write_tar", upload=upload, path=whole)

    async def watch(
        self, path: str, *, recursive: bool = False, ready: asyncio.Event | None = None
    ) -> AsyncIterator[FileChange]:
        whole = absolute_path(path)
        is_inside = whole == WORKSPACE or whole.startswith(f"{WORKSPACE}/")
        real = f"{self._connection.home}{whole}" if is_inside else whole
        watched = {"path": real, "recursive": recursive}
        messages = self._connection.envd.stream("filesystem.Filesystem/WatchDir", watched)
        async with aclosing(messages):
            await self._next(messages)  # the watch is in place
            if ready is not None:
                ready.set()
            while (message := await self._next(messages)) is not None:
                if (event := message.get("filesystem")) is not None:
                    with self._connection.parsing():
                        name, kind = str(event["name"]), _CHANGES[event["type"]]
                    if not name.rpartition("/")[2].startswith(DRAFT):
                        yield FileChange(f"{whole.rstrip('/')}/{name}", kind)
        async with self._connection.reaching(None):
            raise no_response("a watch")

    async def _next(self, messages: AsyncGenerator[Any]) -> Any:
        async with self._connection.reaching(None):
            try:
                return await anext(messages, None)
            except CallError as error:
                if error.code == "not_found":
                    raise FileMissingError from error
                if error.code in ("invalid_argument", "permission_denied"):
                    raise FileRefusedError from error
                raise

    async def _download(self, file: str) -> AsyncGenerator[bytes]:
        timeout_sec = self._connection.timeout_sec
        pieces = self._connection.envd.download(file, within_sec=timeout_sec)
        async with aclosing(pieces):
            while True:
                async with self._connection.reaching(None):
                    try:
                        piece = await anext(pieces, None)
                    except CallError as error:
                        if error.trouble == "not_found":
                            raise FileMissingError from error
                        raise
                if piece is None:
                    return
                yield piece

    async def _ask_info(self, operation: str, **arguments: Any) -> FileInfo:
        return self._info(await self._connection.ask(operation, **arguments))

    def _info(self, entry: Any) -> FileInfo:
        with self._connection.parsing():
            target = entry["target"]
            return FileInfo(
                path=str(entry["path"]),
                kind=entry["kind"],
                size_bytes=int(entry["size_bytes"]),
                mode=int(entry["mode"]),
                modified_at=float(entry["modified_at"]),
                target=None if target is None else str(target),
                attributes=dict(entry["attributes"]),
            )
