"""`filesystem.Filesystem`: the files of a sandbox."""

import asyncio
import posixpath
import secrets
import stat
from collections import deque
from collections.abc import AsyncIterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from sandyard.e2b_api.envd.connect import Message
from sandyard.e2b_api.envd.machine import OwnFiles, UserSession
from sandyard.e2b_api.envd.paths import HOME, ROOT, USER, whole_path
from sandyard.e2b_api.errors import FolderExistsError, InvalidRequestError, NotOfferedError
from sandyard.kit.errors import NotFoundError
from sandyard.runtime.errors import FileMissingError, FileRefusedError, InvalidPathError
from sandyard.runtime.sessions.model import WORKSPACE, FileChange, FileInfo, FileSelection

KEEPALIVE: Message = {"keepalive": {}}
_EVENTS = {
    "created": "EVENT_TYPE_CREATE",
    "written": "EVENT_TYPE_WRITE",
    "removed": "EVENT_TYPE_REMOVE",
    "renamed": "EVENT_TYPE_RENAME",
    "attributes": "EVENT_TYPE_CHMOD",
}
_Next = asyncio.Future[FileChange | None]
_KINDS = {"file": stat.S_IFREG, "folder": stat.S_IFDIR, "link": stat.S_IFLNK, "other": 0}
_TYPES = {"file": "FILE_TYPE_FILE", "folder": "FILE_TYPE_DIRECTORY"}
_OWN = (HOME, WORKSPACE, "/tmp", "/dev/shm")  # noqa: S108 - inside
_MOST_LINKS = 8
_NAMES = {0: ROOT, 1000: USER, 65534: ROOT}
"""Where a sandbox has no root, files of nobody belong to the machine."""
METADATA = "e2b."
"""Prefix of the extended attributes that are metadata."""
_WITH_METADATA = FileSelection(attributes=METADATA)
_DEEPEST = 100
_STREAMED_ONLY = (
    "A server with several workers streams the changes of files only: use WatchDir, as the "
    "asynchronous SDKs do."
)
_MOST_EVENTS = 10_000
_MOST_PER_SANDBOX = 100
_SETTLE_SEC, _SETTLE_STEPS = 0.01, 10


class NotAFolderError(InvalidRequestError):
    """The path is not a directory."""

    code = "E2B_NOT_A_FOLDER"


class FilesystemService:
    """Each call takes the request message and returns the response message."""

    def __init__(self, *, has_watchers: bool = True) -> None:
        self._has_watchers = has_watchers
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
            found = await files.list(folder, depth=_depth(message), selection=_WITH_METADATA)
        except FileRefusedError as error:
            raise NotAFolderError(f"path is not a directory: {path}") from error
        end, shown = len(folder.rstrip("/")), path.rstrip("/")
        return {"entries": [await entry_of(files, f, path=shown + f.path[end:]) for f in found]}

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
        if not self._has_watchers:
            raise NotOfferedError(_STREAMED_ONLY)
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


def _depth(message: Message) -> int:
    depth = message.get("depth") or 1
    if not isinstance(depth, int) or not 0 < depth <= _DEEPEST:
        raise InvalidRequestError(f"`depth` must be a number from 1 to {_DEEPEST}.")
    return depth


def _watcher_id(message: Message) -> str:
    return str(message.get("watcherId") or message.get("watcher_id") or "")


async def entry_of(files: OwnFiles, info: FileInfo, *, path: str | None = None) -> dict[str, Any]:
    """A link has the type of its target, and `symlinkTarget`."""
    shown = path or info.path
    led_to = await _led_to(files, info) if info.kind == "link" else info
    entry: dict[str, Any] = {
        "name": posixpath.basename(shown),
        "path": shown,
        "type": _TYPES.get(led_to.kind if led_to else "", "FILE_TYPE_UNSPECIFIED"),
        "size": str(info.size_bytes),
        "mode": info.mode & 0o7777,
        "permissions": _permissions(info),
        "owner": _name(info.uid, shown),
        "group": _name(info.gid, shown),
        "modifiedTime": datetime.fromtimestamp(info.modified_at, UTC)
        .isoformat()
        .replace("+00:00", "Z"),
    }
    if metadata := metadata_of(info):
        entry["metadata"] = metadata
    if info.target is not None:
        entry["symlinkTarget"] = posixpath.normpath(
            posixpath.join(posixpath.dirname(shown), info.target)
        )
    return entry


def metadata_of(info: FileInfo) -> dict[str, str]:
    return {
        name.removeprefix(METADATA): value
        for name, value in info.attributes.items()
        if name.startswith(METADATA)
    }


async def _led_to(files: OwnFiles, info: FileInfo) -> FileInfo | None:
    """None for a broken link or a loop."""
    for _ in range(_MOST_LINKS):
        if info.kind != "link":
            return info
        try:
            info = await files.stat(posixpath.join(posixpath.dirname(info.path), info.target or ""))
        except (FileMissingError, FileRefusedError, InvalidPathError):
            return None
    return None


def _name(owner: int | None, path: str) -> str:
    """The name of the owner with this id; without an id, derived from the file's location."""
    if owner is None:
        is_own = any(f"{path}/".startswith(f"{each}/") for each in _OWN)
        return USER if is_own else ROOT
    return _NAMES.get(owner, str(owner))


def _permissions(info: FileInfo) -> str:
    shown = stat.filemode(_KINDS[info.kind] | (info.mode & 0o7777))
    return "L" + shown[1:] if info.kind == "link" else shown.replace("?", "-")


class WatcherNotFoundError(NotFoundError, prefix="E2B_"):
    """There is no watch with this id: it ended with the sandbox or the server, or was removed."""


@dataclass(frozen=True, slots=True)
class _Watcher:
    sandbox_id: str
    task: "asyncio.Task[None]"
    events: deque[Message]


class Watchers:
    """In the memory of this process, each for one sandbox."""

    def __init__(self) -> None:
        self._watchers: dict[str, _Watcher] = {}

    async def create(self, sandbox_id: str, events: AsyncIterator[Message]) -> str:
        """`events` begins with one that reports that the watch is in place. Raises the errors of
        `events`."""
        await anext(events)
        self._drop_oldest(sandbox_id)
        watcher_id = secrets.token_hex(16)
        seen: deque[Message] = deque(maxlen=_MOST_EVENTS)
        task = asyncio.create_task(_collect(events, seen))
        task.add_done_callback(lambda done: done.cancelled() or done.exception())
        self._watchers[watcher_id] = _Watcher(sandbox_id, task, seen)
        return watcher_id

    async def take(self, sandbox_id: str, watcher_id: str) -> Sequence[Message]:
        """The events since the last call, including those about to arrive. Raises the error that
        ended the watch, after its last events."""
        watcher = self._find(sandbox_id, watcher_id)
        await _settled(watcher.events)
        if not watcher.events and watcher.task.done():
            watcher.task.result()
        events = list(watcher.events)
        watcher.events.clear()
        return events

    def remove(self, sandbox_id: str, watcher_id: str) -> None:
        self._find(sandbox_id, watcher_id).task.cancel()
        del self._watchers[watcher_id]

    def _find(self, sandbox_id: str, watcher_id: str) -> _Watcher:
        found = self._watchers.get(watcher_id)
        if found is None or found.sandbox_id != sandbox_id:
            raise WatcherNotFoundError
        return found

    def _drop_oldest(self, sandbox_id: str) -> None:
        for watcher_id, watcher in list(self._watchers.items()):
            if watcher.task.done():
                del self._watchers[watcher_id]
        own = [name for name, each in self._watchers.items() if each.sandbox_id == sandbox_id]
        for watcher_id in own[: max(0, len(own) + 1 - _MOST_PER_SANDBOX)]:
            self.remove(sandbox_id, watcher_id)


async def _settled(events: deque[Message]) -> None:
    """Return when no more events arrive, or none has arrived for a while."""
    for _ in range(_SETTLE_STEPS):
        known = len(events)
        await asyncio.sleep(_SETTLE_SEC)
        if known and len(events) == known:
            return


async def _collect(events: AsyncIterator[Message], seen: deque[Message]) -> None:
    try:
        async for event in events:
            seen.append(event["filesystem"])
    finally:
        await events.aclose()  # type: ignore[attr-defined]
