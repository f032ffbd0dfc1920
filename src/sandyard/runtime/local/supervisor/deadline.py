"""Waiting for a deadline that may be moved meanwhile."""

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress

from sandyard.kit.clock import Clock
from sandyard.runtime.local.records.run_folder import LocalRunFolder

POLL_SEC = 0.25
_HEARTBEAT_SEC = 1.0


async def until_deadline(
    folder: LocalRunFolder,
    clock: Clock,
    *,
    sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
) -> None:
    """Return at the current deadline, late only if it is moved to within `POLL_SEC`; record
    heartbeats in between."""
    heartbeat_at = deadline_at = 0.0
    version: tuple[object, ...] = ()
    while True:
        at = clock.now()
        # A read or write that fails for lack of descriptors is no end.
        with suppress(OSError):
            if (latest := folder.up_version()) != version:
                up = folder.up()
                deadline_at = up.deadline_at if up else 0.0  # its folder was removed
                version = latest
        left_sec = deadline_at - at
        if left_sec <= 0:
            return
        if abs(at - heartbeat_at) >= _HEARTBEAT_SEC:
            heartbeat_at = at
            with suppress(OSError):
                folder.write_heartbeat()
        await sleep(min(left_sec, POLL_SEC))
