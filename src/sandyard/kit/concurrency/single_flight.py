"""Single-flight: concurrent callers share one run of the same work."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any, Generic, TypeVar

T = TypeVar("T")


class SingleFlight(Generic[T]):
    """Runs of one key are serialized. Callers that arrive during a run share the next one, so that
    every result comes from a run that started after its call."""

    def __init__(self, *, gather_sec: float = 0) -> None:
        """`gather_sec`: how long a run waits before it starts, so that more callers can share
        it."""
        self._gather_sec = gather_sec
        self._next: dict[str, asyncio.Task[T]] = {}
        self._running: dict[str, asyncio.Lock] = {}
        self._tasks: set[asyncio.Task[Any]] = set()

    async def run(self, key: str, work: Callable[[], Awaitable[T]]) -> T:
        """Cancelling a caller does not stop the run."""
        task = self._next.get(key)
        if task is None:
            task = asyncio.create_task(self._run_alone(key, work))
            self._next[key] = task
            self._tasks.add(task)
            task.add_done_callback(self._ended)
        return await asyncio.shield(task)

    async def stop(self) -> None:
        """Cancel all runs."""
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _run_alone(self, key: str, work: Callable[[], Awaitable[T]]) -> T:
        lock = self._running.setdefault(key, asyncio.Lock())
        async with lock:
            if self._gather_sec:
                await asyncio.sleep(self._gather_sec)
            self._next.pop(key, None)  # callers from here on share the following run
            try:
                return await work()
            finally:
                if key not in self._next:
                    self._running.pop(key, None)

    def _ended(self, task: asyncio.Task[T]) -> None:
        self._tasks.discard(task)
        if not task.cancelled():
            task.exception()  # mark it as retrieved: callers have received it or are gone
