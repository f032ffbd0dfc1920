"""Tasks and locks: concurrent calls with a limit, threads that end with their caller, locks by key,
background tasks, single-flight."""

import asyncio
import logging
import threading
from collections.abc import Awaitable, Callable, Coroutine, Iterable
from typing import Any, Generic, TypeVar
from weakref import WeakValueDictionary

logger = logging.getLogger(__name__)

T = TypeVar("T")
R = TypeVar("R")
_FINISH_SEC = 3.0


async def for_each(
    items: Iterable[T], call: Callable[[T], Awaitable[R]], *, slots: asyncio.Semaphore
) -> list[R]:
    """The results in order; the first error cancels the other calls and is raised."""

    async def one(item: T) -> R:
        async with slots:
            return await call(item)

    items = list(items)
    if len(items) < 2:
        return [await one(item) for item in items]
    try:
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(one(item)) for item in items]
    except ExceptionGroup as trouble:
        raise trouble.exceptions[0] from trouble
    return [task.result() for task in tasks]


async def in_stoppable_thread(
    work: Callable[[Callable[[], None]], T], check: Callable[[], object] = lambda: None
) -> T:
    """`work` gets a function to call often, which calls `check`. If the caller is cancelled, that
    function ends the work by an error, which is waited for: no thread is left behind."""
    stop = threading.Event()

    def go_on() -> None:
        if stop.is_set():
            raise asyncio.CancelledError
        check()

    running = asyncio.ensure_future(asyncio.to_thread(work, go_on))
    try:
        return await asyncio.shield(running)
    finally:
        stop.set()
        await asyncio.gather(running, return_exceptions=True)


class KeyedLocks:
    """One lock per key, removed when no one holds it or waits for it. Waiters acquire it in FIFO
    order."""

    def __init__(self) -> None:
        self._locks: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()

    def of(self, key: str) -> asyncio.Lock:
        lock = self._locks.get(key)
        if lock is None:
            lock = self._locks[key] = asyncio.Lock()
        return lock


class Background:
    """A response does not wait for these tasks, but shutdown does."""

    def __init__(self) -> None:
        self._under_way: set[asyncio.Task[None]] = set()

    def start(self, work: Coroutine[Any, Any, Any], *, action: str) -> None:
        task = asyncio.create_task(self._logged(work, action))
        self._under_way.add(task)
        task.add_done_callback(self._under_way.discard)

    async def finish(self, *, within_sec: float = _FINISH_SEC) -> None:
        """Wait for all running tasks; cancel those that exceed the limit."""
        if self._under_way:
            await asyncio.wait(self._under_way, timeout=within_sec)
        for task in list(self._under_way):
            task.cancel()
        await asyncio.gather(*self._under_way, return_exceptions=True)

    async def _logged(self, work: Coroutine[Any, Any, Any], action: str) -> None:
        try:
            await work
        except Exception:
            logger.exception("work in the background failed", extra={"action": action})


class SingleFlight(Generic[T]):
    """Runs of one key are serialized. Callers that arrive during a run share the next one, so that
    every result comes from a run that started after its call."""

    def __init__(self, *, gather_sec: float = 0) -> None:
        """`gather_sec`: how long a run waits before it starts, so that more callers can share
        it."""
        self._gather_sec = gather_sec
        self._next: dict[str, asyncio.Task[T]] = {}
        self._locks = KeyedLocks()
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
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _run_alone(self, key: str, work: Callable[[], Awaitable[T]]) -> T:
        async with self._locks.of(key):
            if self._gather_sec:
                await asyncio.sleep(self._gather_sec)
            self._next.pop(key, None)  # callers from here on share the following run
            return await work()

    def _ended(self, task: asyncio.Task[T]) -> None:
        self._tasks.discard(task)
        if not task.cancelled():
            task.exception()  # mark it as retrieved: callers have received it or are gone
