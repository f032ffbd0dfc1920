"""Who waits for a process hears of its end, and looks now and then until it comes."""

import asyncio
import os
import subprocess
import time

from sandyard.runtime.local.changes import changes_by, has_ended, until_written


async def test_an_end_is_seen_at_once() -> None:
    with subprocess.Popen(["sleep", "60"]) as process:
        async with changes_by(process.pid) as changed:
            for _ in range(10):
                await changed()
            begun = time.monotonic()
            asyncio.get_running_loop().call_later(0.001, process.kill)
            await changed()
            assert time.monotonic() - begun < 0.04, "else it would be looked at after 0.05 s"
            await changed()


async def test_one_that_is_not_there_is_looked_for_ever_less_often() -> None:
    async with changes_by(None) as changed:
        times = [time.monotonic()]
        for _ in range(8):
            await changed()
            times.append(time.monotonic())
    assert times[-1] - times[-2] > times[1] - times[0]


async def test_an_end_is_waited_for() -> None:
    with subprocess.Popen(["sleep", "60"]) as process:
        assert not await has_ended(process.pid)
        asyncio.get_running_loop().call_later(0.01, process.kill)
        assert await has_ended(process.pid)
    assert not await has_ended(2**22 + 1), "nobody knows whether it ever was"


async def test_a_pipe_tells_by_its_end() -> None:
    told, telling = os.pipe()
    asyncio.get_running_loop().call_later(0.01, os.close, telling)
    begun = time.monotonic()
    await until_written(told)
    assert time.monotonic() - begun < 0.2
