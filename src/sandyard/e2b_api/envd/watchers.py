"""Folder watches that are polled for their events, instead of streamed."""

import asyncio
import secrets
from collections import deque
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass

from sandyard.e2b_api.envd.connect import Message
from sandyard.kit.errors import NotFoundError

_MOST_EVENTS = 10_000
_MOST_PER_SANDBOX = 100
_SETTLE_SEC, _SETTLE_STEPS = 0.01, 10


class WatcherNotFoundError(NotFoundError):
    """There is no watch with this id: it ended with the sandbox or the server, or was removed."""

    code = "E2B_WATCHER_NOT_FOUND"


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
