"""Who waits for a process hears of its end, and looks now and then until it comes."""

import asyncio
import os
import subprocess
import time
from collections.abc import Awaitable, Callable

from sandyard.runtime.local.server.record_changes import changes_by, has_ended, until_written


async def least_of(measure: Callable[[], Awaitable[float]]) -> float:
    """The shortest of some tries: a busy machine makes any of them longer, and none shorter."""
    return min([await measure() for _ in range(5)])


async def seconds_for(wait: Callable[[], Awaitable[object]]) -> float:
    begun = time.monotonic()
    await wait()
    return time.monotonic() - begun


async def test_an_end_is_seen_at_once() -> None:
    async def seconds_to_see_an_end() -> float:
        with subprocess.Popen(["sleep", "60"]) as process:
            async with changes_by(process.pid) as changed:
                for _ in range(10):
                    await changed()
                asyncio.get_running_loop().call_later(0.001, process.kill)
                seconds = await seconds_for(changed)
                await changed()
                return seconds

    assert await least_of(seconds_to_see_an_end) < 0.04, "else it would be looked at after 0.05 s"


async def test_one_that_is_not_there_is_looked_for_ever_less_often() -> None:
    async def first_pause() -> float:
        async with changes_by(None) as changed:
            return await seconds_for(changed)

    async def later_pause() -> float:
        async with changes_by(None) as changed:
            return [await seconds_for(changed) for _ in range(8)][-1]

    assert await least_of(first_pause) < await least_of(later_pause)


async def test_an_end_is_waited_for() -> None:
    with subprocess.Popen(["sleep", "60"]) as process:
        assert not await has_ended(process.pid)
        asyncio.get_running_loop().call_later(0.01, process.kill)
        assert await has_ended(process.pid)
    assert not await has_ended(2**22 + 1), "nobody knows whether it ever was"


async def test_a_pipe_tells_by_its_end() -> None:
    async def seconds_to_see_its_end() -> float:
        told, start_pipe = os.pipe()
        asyncio.get_running_loop().call_later(0.01, os.close, start_pipe)
        return await seconds_for(lambda: until_written(told))

    assert await least_of(seconds_to_see_its_end) < 0.2
