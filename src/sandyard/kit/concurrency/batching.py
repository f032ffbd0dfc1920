"""Batches the requests of many callers into one round trip to an engine."""

import asyncio
from collections.abc import Awaitable, Callable, Hashable, Mapping, Sequence
from contextlib import suppress
from math import ceil
from typing import Generic, TypeVar

from sandyard.kit.wired import wired

Item = TypeVar("Item")
Result = TypeVar("Result")
Key = TypeVar("Key", bound=Hashable)
Found = TypeVar("Found")


@wired
class Batcher(Generic[Item, Result]):
    """Collects items submitted while earlier batches run, and runs them together.

    A single caller never waits for others. After a batch of several items, the next batch waits
    until as many items have been submitted again, at most `pause_sec` for each: a few full batches
    cost less than many small ones. Items with the same key are never in two concurrent batches;
    within a batch they are in order of arrival. If a caller is cancelled, its item stays in the
    batch. `run` returns a result or an exception for each item, so one caller's failure does not
    affect another.

    `is_spread`: divide waiting items evenly among the free workers instead of filling one
    batch."""

    run: Callable[[Sequence[Item]], Awaitable[Sequence[Result | Exception]]]
    key: Callable[[Item], Hashable]
    parallel: int
    max_size: int
    pause_sec: float = 0
    is_spread: bool = False

    def __post_init__(self) -> None:
        self._waiting: list[tuple[Item, asyncio.Future[Result]]] = []
        self._keys_under_way: set[Hashable] = set()
        self._under_way = 0
        self._at_work = 0
        self._is_starting = False
        self._expected = 0
        self._are_back = asyncio.Event()
        self._workers: set[asyncio.Task[None]] = set()

    async def submit(self, item: Item) -> Result:
        future: asyncio.Future[Result] = asyncio.get_running_loop().create_future()
        self._waiting.append((item, future))
        if self._expected and len(self._waiting) >= self._expected:
            self._are_back.set()
        self._start_worker()
        return await future

    async def drain(self) -> None:
        while self._workers:  # one may start another
            await asyncio.gather(*self._workers)

    def _start_worker(self) -> None:
        """Start one worker at a time: it takes the items waiting when it runs, and starts another
        for the rest."""
        if self._is_starting or not self._waiting or self._at_work == self.parallel:
            return
        self._is_starting = True
        self._at_work += 1
        worker = asyncio.create_task(self._work())
        self._workers.add(worker)  # the loop holds only weak references to tasks
        worker.add_done_callback(self._workers.discard)

    async def _work(self) -> None:
        self._is_starting = False
        while batch := self._take():
            self._start_worker()
            keys = {self.key(item) for item, _ in batch}
            self._keys_under_way |= keys
            self._under_way += 1
            try:
                results = await self.run([item for item, _ in batch])
            except Exception as error:
                results = [error] * len(batch)
            finally:
                self._keys_under_way -= keys
                self._under_way -= 1
            for (_, future), result in zip(batch, results, strict=True):
                _resolve(future, result)
            if len(batch) > 1 and self.pause_sec:
                await self._wait_for_callers(len(batch))
        self._at_work -= 1  # no await since `_take` found nothing, so no item is missed

    async def _wait_for_callers(self, number: int) -> None:
        if len(self._waiting) >= number:
            return
        self._expected = number
        self._are_back.clear()
        with suppress(TimeoutError):
            async with asyncio.timeout(self.pause_sec * number):
                await self._are_back.wait()
        self._expected = 0

    def _take(self) -> list[tuple[Item, asyncio.Future[Result]]]:
        most = self.max_size
        if self.is_spread:
            most = min(most, ceil(len(self._waiting) / (self.parallel - self._under_way)))
        if len(self._waiting) <= most and not self._keys_under_way:
            batch, self._waiting = self._waiting, []
            return batch
        batch = []
        left: list[tuple[Item, asyncio.Future[Result]]] = []
        for entry in self._waiting:
            fits = len(batch) < most and self.key(entry[0]) not in self._keys_under_way
            (batch if fits else left).append(entry)
        self._waiting = left
        return batch


class BatchedLookup(Generic[Key, Found]):
    """Lookups by key, batched: each runs in a query that starts after the lookup was requested."""

    _LARGEST = 200

    def __init__(
        self,
        find_all: Callable[[Sequence[Key]], Awaitable[Mapping[Key, Found]]],
        *,
        parallel: int = 2,
    ) -> None:
        """`find_all` omits keys that do not exist."""
        self._find_all = find_all
        self._lookups: Batcher[Key, Found | None] = Batcher(
            self._find_together, key=_no_matter, parallel=parallel, max_size=self._LARGEST
        )

    async def find(self, key: Key) -> Found | None:
        return await self._lookups.submit(key)

    async def _find_together(self, keys: Sequence[Key]) -> Sequence[Found | None]:
        found = await self._find_all(keys)
        return [found.get(key) for key in keys]


def _no_matter(_item: object) -> Hashable:
    """The same key may be looked up concurrently."""
    return object()


def _resolve(future: asyncio.Future[Result], result: Result | Exception) -> None:
    if future.done():
        return
    if isinstance(result, Exception):
        future.set_exception(result)
    else:
        future.set_result(result)
