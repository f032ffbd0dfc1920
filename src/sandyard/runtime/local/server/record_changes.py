"""Waits for changes of a machine's records: until their writer ends, with polling at growing
intervals."""

import asyncio
import os
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress

from sandyard.runtime.local.ipc.packets import readable

_FIRST_SEC, _LAST_SEC = 0.005, 0.05
_LONGER = 1.5
_WAIT_SEC = 0.25


@asynccontextmanager
async def changes_by(pid: int | None) -> AsyncIterator[Callable[[], Awaitable[None]]]:
    """Yields a function that returns when the process has ended, or soon."""
    process = _opened(pid)
    pause_sec = _FIRST_SEC

    async def changed() -> None:
        nonlocal process, pause_sec
        if process is None or not await _is_readable(process, pause_sec):
            await asyncio.sleep(pause_sec if process is None else 0)
        else:
            os.close(process)
            process = None
        pause_sec = min(_LONGER * pause_sec, _LAST_SEC)

    try:
        yield changed
    finally:
        if process is not None:
            os.close(process)


async def has_ended(pid: int) -> bool:
    """Whether this process has ended, or does so within a moment. Reading /proc now would block on
    the kernel, which is tearing it down."""
    process = _opened(pid)
    if process is None:
        await asyncio.sleep(_FIRST_SEC)
        return False
    try:
        return await _is_readable(process, _WAIT_SEC)
    finally:
        os.close(process)


async def until_written(pipe: int) -> None:
    """Return when the other end of the pipe is closed, or after a timeout; closes ours."""
    try:
        await _is_readable(pipe, _WAIT_SEC)
    finally:
        os.close(pipe)


async def _is_readable(descriptor: int, within_sec: float) -> bool:
    with suppress(TimeoutError):
        async with asyncio.timeout(within_sec):
            await readable(descriptor)
            return True
    return False


def _opened(pid: int | None) -> int | None:
    if pid is not None:
        with suppress(AttributeError, OSError):
            return os.pidfd_open(pid)
    return None
