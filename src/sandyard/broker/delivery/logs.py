"""The event logs of the parts, each opened when it is first read."""

import logging
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import AbstractAsyncContextManager, AsyncExitStack

from sandyard.kit.changes.events import EventLog, LoggedEvent
from sandyard.kit.errors import UnavailableError

logger = logging.getLogger(__name__)

OpenLog = Callable[[], AbstractAsyncContextManager[EventLog]]


class Logs:
    """`own` is already open; the others belong to parts that may use another engine."""

    def __init__(self, own: EventLog, others: Mapping[str, OpenLog]) -> None:
        self._open = {own.part: own}
        self._others = others
        self._stack = AsyncExitStack()

    @property
    def parts(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys((*self._open, *self._others)))

    async def get(self, part: str) -> EventLog:
        """Raises UnavailableError while its engine is unavailable or its schema outdated."""
        if part not in self._open:
            self._open[part] = await self._stack.enter_async_context(self._others[part]())
        return self._open[part]

    async def find(self, event_id: str) -> LoggedEvent | None:
        """The event with this id, in any log."""
        at_ms = int(event_id[:12], 16)
        async for log in self._available():
            async for events in log.between(from_ms=at_ms, to_ms=at_ms + 1):
                for logged in events:
                    if logged.event_id == event_id:
                        return logged
        return None

    async def _available(self) -> AsyncIterator[EventLog]:
        for part in self.parts:
            try:
                yield await self.get(part)
            except UnavailableError as error:
                logger.warning("an event log can't be read: %s", error.message)

    async def close(self) -> None:
        await self._stack.aclose()
