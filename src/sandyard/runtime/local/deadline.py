"""Waiting for a deadline that may be moved meanwhile."""

import asyncio
import time
from collections.abc import Awaitable, Callable

from sandyard.runtime.local.records import LocalRunFolder

POLL_SEC = 0.25
_HEARTBEAT_SEC = 1.0


async def until_deadline(
    folder: LocalRunFolder,
    *,
    now: Callable[[], float] = time.time,
    sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
) -> None:
    """Return at the deadline as it stands then, never past it but for one that is moved to
    within `POLL_SEC`; note in between that the program lives."""
    heartbeat_at = 0.0
    while True:
        running, at = folder.running(), now()
        left_sec = running.deadline_at - at if running else 0
        if left_sec <= 0:
            return
        if abs(at - heartbeat_at) >= _HEARTBEAT_SEC:
            heartbeat_at = at
            folder.write_heartbeat()
        await sleep(min(left_sec, POLL_SEC))
