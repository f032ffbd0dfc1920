"""What a page that follows is told: nothing is missed between its drawing and its connection."""

import asyncio
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import aclosing

import pytest

from sandyard.console.live import LiveChanges
from sandyard.kit.events import Effect, Event, EventQuery, LoggedEvent
from sandyard.kit.ids import EventIds
from sandyard.kit.paging import Page

HOUR_MS = 3_600_000
make_id = EventIds()


class Log:
    """The newest events of one part."""

    def __init__(self, *events: LoggedEvent) -> None:
        self.events = list(events)

    async def page(self, query: EventQuery, *, limit: int, cursor: str | None) -> Page[LoggedEvent]:
        assert query == EventQuery()
        return Page(self.events[:limit], cursor)


def event(part: str, at_ms: int, account_id: str | None = None) -> LoggedEvent:
    happened = Event("x.changed", "x", 1, "operator", at_ms, Effect.NONE, account_id=account_id)
    return LoggedEvent(make_id(at_ms), part, happened)


def now_ms() -> int:
    return int(time.time() * 1000)


async def told(stream: AsyncIterator[bytes]) -> set[str]:
    """The names of the next events."""
    async with asyncio.timeout(20):
        async for piece in stream:
            if b"event: " in piece:
                lines = piece.decode().splitlines()
                return {line[7:] for line in lines if line.startswith("event: ")}
    raise AssertionError("the stream ended")


@pytest.mark.parametrize(
    ("account_id", "is_operator", "heard"),
    [(None, True, {"broker", "platform"}), ("ann", False, {"platform"})],
)
async def test_what_happened_since_it_was_drawn_is_told(
    account_id: str | None, is_operator: bool, heard: set[str]
) -> None:
    drawn = now_ms() - HOUR_MS
    logs: Sequence[Log] = [
        Log(event("broker", drawn + 1)),
        Log(event("platform", drawn + 1, "ann"), event("telemetry", drawn - HOUR_MS, "ann")),
    ]
    stream = LiveChanges(logs).stream(
        account_id, is_operator=is_operator, since_ms=drawn, is_draining=lambda: False
    )
    async with aclosing(stream):
        assert await told(stream) == heard


async def test_what_happens_later_is_told_and_what_was_before_is_not() -> None:
    log = Log(event("broker", now_ms() - HOUR_MS))
    stream = LiveChanges([log]).stream(
        None, is_operator=True, since_ms=now_ms(), is_draining=lambda: False
    )
    async with aclosing(stream):
        opening = await anext(stream)
        assert opening.startswith(b"retry: 2000\nid: ")
        following = asyncio.ensure_future(told(stream))
        await asyncio.sleep(0)
        log.events = [event("telemetry", now_ms()), *log.events]
        assert await following == {"telemetry"}
