"""Followers of a program's log share one reader of it."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass, field

from sandyard.kit.concurrency.tasks import KeyedLocks
from sandyard.runtime.model import Log, RunId

_READ_SEC = 0.1
_MOST_WAITING = 64
"""The most pieces that wait for a slow follower."""

ReadLog = Callable[[RunId, int | None], Awaitable[tuple[Log, bool]]]
"""What was written from this byte on, or all that is stored; and whether nothing will follow."""


class _Follower:
    """Gets the pieces that it has time for, the latest ones if it is slow."""

    def __init__(self) -> None:
        self._waiting: asyncio.Queue[Log | Exception | None] = asyncio.Queue(_MOST_WAITING)

    def put(self, piece: Log | Exception | None) -> None:
        if self._waiting.full():
            self._waiting.get_nowait()
        self._waiting.put_nowait(piece)

    async def get(self) -> Log | None:
        """None at the end. Raises the error of the reader."""
        piece = await self._waiting.get()
        if isinstance(piece, Exception):
            raise piece
        return piece


@dataclass(slots=True)
class _Reader:
    task: "asyncio.Task[None] | None" = None
    followers: set[_Follower] = field(default_factory=set)

    def tell(self, piece: Log | Exception | None) -> None:
        for follower in self.followers:
            follower.put(piece)


class LogFollowers:
    def __init__(self, read: ReadLog) -> None:
        self._read = read
        self._readers: dict[RunId, _Reader] = {}
        self._starts = KeyedLocks()

    async def follow(self, run_id: RunId) -> AsyncIterator[Log]:
        """All that is stored, and then each new piece, until nothing will follow. A slow follower
        misses some. Raises the errors of reading."""
        reader, follower = await self._joined(run_id)
        try:
            log, _ = await self._read(run_id, None)
            yield log
            at = log.begins_at + len(log.content)
            while (piece := await follower.get()) is not None:
                known = max(0, at - piece.begins_at)
                at = max(at, piece.begins_at + len(piece.content))
                if content := piece.content[known:]:
                    yield Log(piece.begins_at + known, content)
        finally:
            self._leave(run_id, reader, follower)

    async def _joined(self, run_id: RunId) -> tuple[_Reader, _Follower]:
        """A follower of the reader, which has read no more than the follower's own first reading
        will have."""
        async with self._starts.of(str(run_id)):
            reader = self._readers.get(run_id)
            if reader is None or reader.task is None or reader.task.done():
                log, _ = await self._read(run_id, None)
                reader = self._readers[run_id] = _Reader()
                begin = log.begins_at + len(log.content)
                reader.task = asyncio.create_task(self._run(run_id, reader, begin))
        follower = _Follower()
        reader.followers.add(follower)
        return reader, follower

    def _leave(self, run_id: RunId, reader: _Reader, follower: _Follower) -> None:
        reader.followers.discard(follower)
        if reader.followers or reader.task is None:
            return
        reader.task.cancel()
        if self._readers.get(run_id) is reader:
            del self._readers[run_id]

    async def _run(self, run_id: RunId, reader: _Reader, at: int) -> None:
        try:
            is_over = False
            while not is_over:
                piece, is_over = await self._read(run_id, at)
                at = max(at, piece.begins_at + len(piece.content))
                if piece.content:
                    reader.tell(piece)
                if not is_over:
                    await asyncio.sleep(_READ_SEC)
            reader.tell(None)
        except Exception as error:
            reader.tell(error)
