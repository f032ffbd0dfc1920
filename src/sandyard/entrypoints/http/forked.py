"""Long work of the interpreter, done by a short-lived copy of the process.

A thread would hold the interpreter's lock for most of that time, and claims would wait for it.
"""

import asyncio
import gc
import os
import signal
import sys
import traceback
from collections.abc import Callable
from typing import NoReturn

from sandyard.kit.errors import UnavailableError

_MOST_SEC = 120.0
_PRIORITY = 10
_STANDARD_STREAMS = 3


async def run_forked(work: Callable[[], bytes], *, within_sec: float = _MOST_SEC) -> bytes:
    """What `work` returns; the copy has nothing of this process but its memory: no connections and
    no threads. Call it on the event loop, where no lock is held that the work needs. Raises
    UnavailableError if it fails, or takes too long."""
    if sys.platform != "linux":  # a copy of a process with threads does not work everywhere
        return await asyncio.to_thread(work)
    reading, writing = os.pipe()
    pid = os.fork()
    if not pid:
        _work_and_exit(work, writing)
    os.close(writing)
    result = asyncio.create_task(asyncio.to_thread(_result_of, pid, reading))
    try:
        async with asyncio.timeout(within_sec):
            return await asyncio.shield(result)
    except BaseException as error:
        if not result.done():
            os.kill(pid, signal.SIGKILL)
        if isinstance(error, TimeoutError):
            raise UnavailableError("This could not be built.", retry_after=1) from error
        raise


def _result_of(pid: int, reading: int) -> bytes:
    with open(reading, "rb") as results:
        content = results.read()
    _, status = os.waitpid(pid, 0)
    if status:
        raise UnavailableError("This could not be built.", retry_after=1)
    return content


def _work_and_exit(work: Callable[[], bytes], writing: int) -> NoReturn:
    code = 1
    try:
        gc.disable()
        signal.set_wakeup_fd(-1)
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, signal.SIG_DFL)
        os.closerange(_STANDARD_STREAMS, writing)
        os.closerange(writing + 1, os.sysconf("SC_OPEN_MAX"))
        os.nice(_PRIORITY)
        with open(writing, "wb") as results:
            results.write(work())
        code = 0
    except BaseException:
        traceback.print_exc()
    finally:
        os._exit(code)
