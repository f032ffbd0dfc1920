"""`filesystem.Filesystem`: the files of a sandbox."""

import asyncio
import posixpath
from collections.abc import AsyncIterator
from contextlib import suppress
from typing import Any

from sandyard.e2b_api.envd.connect import Message
from sandyard.e2b_api.envd.entries import entry_of
from sandyard.e2b_api.envd.machine import UserSession
from sandyard.e2b_api.envd.own_files import OwnFiles
from sandyard.e2b_api.envd.paths import whole_path
from sandyard.e2b_api.envd.watchers import Watchers
from sandyard.e2b_api.errors import FolderExistsError, InvalidRequestError
from sandyard.runtime.errors import FileMissingError, FileRefusedError
from sandyard.runtime.sessions.model import FileChange

KEEPALIVE: Message = {"keepalive": {}}
_EVENTS = {
    "created": "EVENT_TYPE_CREATE",
    "written": "EVENT_TYPE_WRITE",
    "removed": "EVENT_TYPE_REMOVE",
    "renamed": "EVENT_TYPE_RENAME",
    "attributes": "EVENT_TYPE_CHMOD",
}


_Next = asyncio.Future[FileChange | None]


class NotAFolderError(InvalidRequestError):
    """The path is not a directory."""

    code = "E2B_NOT_A_FOLDER"


class FilesystemService:
    """Each call takes the request message and returns the response message."""

    def __init__(self) -> None:
        self._watchers = Watchers()

    async def stat(self, session: UserSession, message: Message) -> Message:
        path, files = _path(session, message), session.files
        return {"entry": await entry_of(files, await files.stat(path), path=path)}

    async def make_dir(self, session: UserSession, message: Message) -> Message:
        path, files = _path(session, message), session.files
        with suppress(FileMissingError):
            if (await files.stat(path)).kind == "file":
                raise NotAFolderError(f"path already exists but it is not a directory: {path}")
        if not await files.make_folder(path):
            raise FolderExistsError(f"directory already exists: {path}")
        return {"entry": await entry_of(files, await files.stat(path), path=path)}

    async def move(self, session: UserSession, message: Message) -> Message:
        files = session.files
        source, target = _path(session, message, "source"), _path(session, message, "destination")
        await files.stat(source)
        await files.make_folder(posixpath.dirname(target))
        return {"entry": await entry_of(files, await files.move(source, target), path=target)}

    async def list_dir(self, session: UserSession, message: Message) -> Message:
        path, files = _path(session, message), session.files
        folder = await _folder(files, path)
        try:
            found = await files.list(folder, depth=int(message.get("depth") or 1))
        except FileRefusedError as error:
            raise NotAFolderError(f"path is not a directory: {path}") from error
        shown = [(each, _shown(each.path, folder, path)) for each in found]
        return {"entries": [await entry_of(files, each, path=name) for each, name in shown]}

    async def remove(self, session: UserSession, message: Message) -> Message:
        """No error if it does not exist."""
        with suppress(FileMissingError):
            await session.files.remove(_path(session, message))
        return {}

    async def watch_dir(
        self, session: UserSession, message: Message, _deadline_sec: float | None = None
    ) -> AsyncIterator[Message]:
        path, files = _path(session, message), session.files
        with_entry = bool(message.get("includeEntry"))
        folder = await _folder(files, path)
        if (await files.stat(folder)).kind != "folder":
            raise NotAFolderError(f"path {path} not a directory")
        ready = asyncio.Event()
        changes = (await files.watched(folder)).watch(
            folder, recursive=bool(message.get("recursive")), ready=ready
        )
        change: _Next = asyncio.ensure_future(anext(changes, None))
        try:
            await _either(change, ready)
            yield {"start": {}}
            while (seen := await change) is not None:
                yield {"filesystem": await _event(files, seen, folder, with_entry=with_entry)}
                change = asyncio.ensure_future(anext(changes, None))
        finally:
            change.cancel()
            await asyncio.wait({change})
            await changes.aclose()  # type: ignore[attr-defined]

    async def create_watcher(self, session: UserSession, message: Message) -> Message:
        events = self.watch_dir(session, message)
        return {"watcherId": await self._watchers.create(session.machine.id, events)}

    async def get_watcher_events(self, session: UserSession, message: Message) -> Message:
        sandbox_id, watcher_id = session.machine.id, _watcher_id(message)
        return {"events": await self._watchers.take(sandbox_id, watcher_id)}

    async def remove_watcher(self, session: UserSession, message: Message) -> Message:
        self._watchers.remove(session.machine.id, _watcher_id(message))
        return {}


async def _either(change: _Next, ready: asyncio.Event) -> None:
    """Return when the watch is in place. Raises its error if it fails before."""
    waiting = asyncio.ensure_future(ready.wait())
    try:
        both: set[asyncio.Future[Any]] = {change, waiting}
        await asyncio.wait(both, return_when=asyncio.FIRST_COMPLETED)
        if change.done():
            change.result()
    finally:
        waiting.cancel()


async def _folder(files: OwnFiles, path: str) -> str:
    """The path, or the target of a link."""
    info = await files.stat(path)
    if info.kind != "link" or info.target is None:
        return path
    return posixpath.normpath(posixpath.join(posixpath.dirname(path), info.target))


def _shown(path: str, folder: str, asked: str) -> str:
    return asked.rstrip("/") + path[len(folder.rstrip("/")) :]


async def _event(
    files: OwnFiles, change: FileChange, folder: str, *, with_entry: bool
) -> dict[str, Any]:
    """With the current entry at the path, if requested and there is one."""
    name = change.path.removeprefix(folder.rstrip("/") + "/")
    event: dict[str, Any] = {"name": name, "type": _EVENTS[change.kind]}
    if with_entry:
        with suppress(FileMissingError, FileRefusedError):
            event["entry"] = await entry_of(files, await files.stat(change.path))
    return event


def _path(session: UserSession, message: Message, name: str = "path") -> str:
    return whole_path(str(message.get(name, "")), session.home)


def _watcher_id(message: Message) -> str:
    return str(message.get("watcherId") or message.get("watcher_id") or "")
