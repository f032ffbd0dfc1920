"""Background tasks: a response does not wait for them, but shutdown does."""

import asyncio
import logging
from collections.abc import Coroutine
from typing import Any

logger = logging.getLogger(__name__)

_FINISH_SEC = 3.0


class Background:
    def __init__(self) -> None:
        self._under_way: set[asyncio.Task[None]] = set()

    def start(self, work: Coroutine[Any, Any, Any], *, action: str) -> None:
        """Start the task; failures are logged."""
        task = asyncio.create_task(self._logged(work, action))
        self._under_way.add(task)
        task.add_done_callback(self._under_way.discard)

    async def finish(self, *, within_sec: float = _FINISH_SEC) -> None:
        """Wait for all running tasks; cancel those that exceed the limit."""
        if self._under_way:
            await asyncio.wait(self._under_way, timeout=within_sec)
        for task in list(self._under_way):
            task.cancel()
        await asyncio.gather(*self._under_way, return_exceptions=True)

    async def _logged(self, work: Coroutine[Any, Any, Any], action: str) -> None:
        try:
            await work
        except Exception:
            logger.exception("work in the background failed", extra={"action": action})
