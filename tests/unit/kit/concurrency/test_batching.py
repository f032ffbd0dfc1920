"""Batches: company without waiting, and no caller's trouble for another."""

import asyncio
from collections.abc import Mapping, Sequence

import pytest

from sandyard.kit.concurrency.batching import BatchedLookup, Batcher


class Recorder:
    """Runs batches when released, and remembers what was in them."""

    def __init__(self) -> None:
        self.batches: list[list[str]] = []
        self.release = asyncio.Event()

    async def run(self, items: Sequence[str]) -> Sequence[str | Exception]:
        self.batches.append(list(items))
        await self.release.wait()
        return [ValueError(item) if item.startswith("bad") else item.upper() for item in items]


async def all_wait() -> None:
    """Let every task go on until it waits for something that no task does."""
    for _ in range(50):
        await asyncio.sleep(0)


def batcher(recorder: Recorder, *, parallel: int = 1, max_size: int = 10) -> Batcher[str, str]:
    return Batcher(
        recorder.run, key=lambda item: item.split("/")[0], parallel=parallel, max_size=max_size
    )


async def test_what_comes_while_a_batch_runs_goes_together_in_the_next() -> None:
    recorder = Recorder()
    batches = batcher(recorder)
    first = asyncio.create_task(batches.submit("a"))
    await all_wait()
    rest = [asyncio.create_task(batches.submit(item)) for item in "bcd"]
    await all_wait()
    recorder.release.set()
    assert await first == "A"
    assert await asyncio.gather(*rest) == ["B", "C", "D"]
    assert recorder.batches == [["a"], ["b", "c", "d"]]


async def test_when_spread_none_takes_two_while_another_could_run() -> None:
    for items, expected in (("ab", [1, 1]), ("cdefg", [2, 2, 1]), ("hijklmnopqrstuvw", [4, 4, 4])):
        recorder = Recorder()
        batches: Batcher[str, str] = Batcher(
            recorder.run, key=str, parallel=3, max_size=4, is_spread=True
        )
        tasks = [asyncio.create_task(batches.submit(item)) for item in items]
        await all_wait()
        assert [len(batch) for batch in recorder.batches] == expected
        recorder.release.set()
        await asyncio.gather(*tasks)


async def test_draining_ends_when_all_is_done() -> None:
    recorder = Recorder()
    batches = batcher(recorder)
    await batches.drain()
    waiting = asyncio.create_task(batches.submit("a"))
    await all_wait()
    drained = asyncio.create_task(batches.drain())
    await all_wait()
    assert not drained.done()
    recorder.release.set()
    await drained
    assert await waiting == "A"


async def test_draining_waits_also_for_batches_that_begin_meanwhile() -> None:
    early, last = asyncio.Event(), asyncio.Event()

    async def run(items: Sequence[str]) -> Sequence[str]:
        await (last if "c" in items else early).wait()
        return items

    batches: Batcher[str, str] = Batcher(run, key=str, parallel=3, max_size=1)
    waiting = [asyncio.create_task(batches.submit(item)) for item in "abc"]
    await asyncio.sleep(0)  # all are submitted, and no batch has begun
    drained = asyncio.create_task(batches.drain())
    await all_wait()
    early.set()
    await all_wait()
    assert [each.done() for each in waiting] == [True, True, False]
    assert not drained.done()
    last.set()
    await drained
    assert await asyncio.gather(*waiting) == ["a", "b", "c"]


async def test_what_waits_runs_at_once_as_far_as_batches_are_allowed() -> None:
    recorder = Recorder()
    batches = batcher(recorder, parallel=3, max_size=2)
    waiting = [asyncio.create_task(batches.submit(item)) for item in "abcdefg"]
    await all_wait()
    assert recorder.batches == [["a", "b"], ["c", "d"], ["e", "f"]]
    recorder.release.set()
    await asyncio.gather(*waiting)


async def test_a_failure_is_its_own_callers_alone() -> None:
    recorder = Recorder()
    recorder.release.set()
    batches = batcher(recorder)
    results = await asyncio.gather(
        *(batches.submit(item) for item in ("a", "bad", "c")), return_exceptions=True
    )
    assert results[0] == "A"
    assert isinstance(results[1], ValueError)
    assert results[2] == "C"


async def test_a_caller_that_leaves_does_not_take_its_batch_along() -> None:
    recorder = Recorder()
    batches = batcher(recorder)
    tasks = [asyncio.create_task(batches.submit(item)) for item in "abc"]
    await all_wait()
    tasks[1].cancel()
    await asyncio.sleep(0)
    recorder.release.set()
    assert await tasks[0] == "A"
    assert await tasks[2] == "C"
    assert recorder.batches == [["a", "b", "c"]]


async def test_a_key_is_never_in_two_batches_at_once() -> None:
    recorder = Recorder()
    batches = batcher(recorder, parallel=3)
    first = asyncio.create_task(batches.submit("k/1"))
    await all_wait()
    second = asyncio.create_task(batches.submit("k/2"))
    other = asyncio.create_task(batches.submit("x"))
    await all_wait()
    assert recorder.batches == [["k/1"], ["x"]]
    recorder.release.set()
    assert [await first, await second, await other] == ["K/1", "K/2", "X"]
    assert recorder.batches[-1] == ["k/2"]


async def test_no_batch_is_larger_than_allowed_and_nothing_is_left_behind() -> None:
    recorder = Recorder()
    recorder.release.set()
    batches = batcher(recorder, parallel=2, max_size=3)
    items = [f"i{number}" for number in range(20)]
    assert await asyncio.gather(*map(batches.submit, items)) == [i.upper() for i in items]
    assert max(map(len, recorder.batches)) == 3
    for item in ("later", "and again"):
        assert await asyncio.wait_for(batches.submit(item), 20) == item.upper()


async def test_a_run_that_breaks_is_told_to_everyone_in_it() -> None:
    async def broken(_items: Sequence[str]) -> Sequence[str]:
        raise OSError("away")

    batches: Batcher[str, str] = Batcher(broken, key=str, parallel=1, max_size=5)
    results = await asyncio.gather(*map(batches.submit, "ab"), return_exceptions=True)
    assert all(isinstance(result, OSError) for result in results)
    with pytest.raises(OSError, match="away"):
        await batches.submit("c")


async def test_the_next_batch_begins_when_as_many_are_back() -> None:
    recorder = Recorder()
    recorder.release.set()
    batches: Batcher[str, str] = Batcher(
        recorder.run, key=str, parallel=1, max_size=10, pause_sec=3600
    )
    await asyncio.gather(*(batches.submit(item) for item in "abc"))
    async with asyncio.timeout(30):
        await asyncio.gather(*(batches.submit(item) for item in "def"))
    assert recorder.batches == [["a", "b", "c"], ["d", "e", "f"]]
    for worker in batches._workers:
        worker.cancel()


async def test_who_is_not_back_is_waited_for_only_so_long() -> None:
    recorder = Recorder()
    recorder.release.set()
    batches: Batcher[str, str] = Batcher(
        recorder.run, key=str, parallel=1, max_size=10, pause_sec=0.001
    )
    await asyncio.gather(*(batches.submit(item) for item in "abc"))
    assert await batches.submit("d") == "D"
    await batches.drain()


class Shelf:
    """Looks up when released, and remembers what was asked for together."""

    def __init__(self, **found: str) -> None:
        self.found = found
        self.lookups: list[list[str]] = []
        self.release = asyncio.Event()

    async def find_all(self, keys: Sequence[str]) -> Mapping[str, str]:
        self.lookups.append(list(keys))
        await self.release.wait()
        return {key: self.found[key] for key in keys if key in self.found}


async def test_lookups_that_wait_share_one_that_begins_after_all_of_them() -> None:
    shelf = Shelf(a="1", b="2", c="3")
    lookup: BatchedLookup[str, str] = BatchedLookup(shelf.find_all, parallel=1)
    first = asyncio.create_task(lookup.find("a"))
    await all_wait()
    rest = [asyncio.create_task(lookup.find(key)) for key in ("b", "missing", "c", "b")]
    await all_wait()
    assert shelf.lookups == [["a"]]
    shelf.release.set()
    assert await first == "1"
    assert await asyncio.gather(*rest) == ["2", None, "3", "2"]
    assert shelf.lookups == [["a"], ["b", "missing", "c", "b"]]
