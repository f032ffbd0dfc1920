"""Who waits for a process or a pipe sees its end at once."""

import asyncio
import os
import subprocess
import time

from sandyard.runtime.local.server.machines import becomes_readable, process_descriptor


async def test_an_end_is_waited_for() -> None:
    with subprocess.Popen(["sleep", "60"]) as process:
        assert not await becomes_readable(process_descriptor(process.pid))
        asyncio.get_running_loop().call_later(0.01, process.kill)
        assert await becomes_readable(process_descriptor(process.pid))
    missing = process_descriptor(2**22 + 1)
    assert missing is None
    assert not await becomes_readable(missing), "it is unknown whether it ever existed"


async def test_the_end_of_a_pipe_is_seen_at_once() -> None:
    """The shortest of some tries: a busy machine makes any of them longer, and none shorter."""
    seconds = []
    for _ in range(5):
        reader, writer = os.pipe()
        asyncio.get_running_loop().call_later(0.01, os.close, writer)
        begun = time.monotonic()
        assert await becomes_readable(reader)
        seconds.append(time.monotonic() - begun)
    assert min(seconds) < 0.2
