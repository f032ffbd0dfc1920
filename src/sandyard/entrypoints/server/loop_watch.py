"""Measures how long the event loop of a process is busy with one turn: so long everybody waits. A
process whose loop stands still is ended.
"""

import asyncio
import signal
import time

from prometheus_client import CollectorRegistry, Histogram

_EVERY_SEC = 0.05
_BUCKETS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 1, 5)


class LoopWatch:
    """A timer that is late while the loop is busy. Counts the time for which the process itself was
    running: on a busy machine a timer is late without its doing."""

    def __init__(self, registry: CollectorRegistry, *, process: str) -> None:
        busy = Histogram(
            "sandyard_event_loop_busy_seconds",
            "How long the event loop was busy when a timer was due",
            ("process",),
            buckets=_BUCKETS,
            registry=registry,
        )
        self._busy = busy.labels(process)

    async def watch_forever(self) -> None:
        while True:
            due_at, used_sec = time.monotonic() + _EVERY_SEC, time.thread_time()
            await asyncio.sleep(_EVERY_SEC)
            late_sec = time.monotonic() - due_at
            self._busy.observe(min(late_sec, time.thread_time() - used_sec))


async def end_if_stalled(after_sec: int) -> None:
    """Have the kernel end this process if its event loop stands still for so long, whatever holds
    the interpreter: its keeper starts it again."""
    try:
        while True:
            signal.alarm(after_sec)
            await asyncio.sleep(after_sec / 10)
    finally:
        signal.alarm(0)
