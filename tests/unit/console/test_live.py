"""What a page that follows is told: nothing is missed between its drawing and its connection."""

import asyncio
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import aclosing
from dataclasses import dataclass

import pytest

from sandyard.console.live import Listener, LiveChanges, gathering_sec, pace_sec
from sandyard.kit.changes.events import Effect, Event, EventQuery, LoggedEvent
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


def event(
    part: str, at_ms: int, account_id: str | None = None, kind: str = "x.changed"
) -> LoggedEvent:
    happened = Event(kind, "x", 1, "operator", at_ms, Effect.NONE, account_id=account_id)
    return LoggedEvent(make_id(at_ms), part, happened)


def now_ms() -> int:
    return int(time.time() * 1000)


EVERY_PART = frozenset({"broker", "telemetry", "platform", "previews"})


@dataclass
class Session:
    """Whether it holds, and whether its server is about to stop."""

    holds: bool = True
    is_draining: bool = False

    async def is_valid(self) -> bool:
        return self.holds


def listener_of(
    account_id: str | None,
    session: Session | None = None,
    *,
    operates: frozenset[str] = EVERY_PART,
) -> Listener:
    session = session or Session()
    return Listener(account_id, operates, session.is_valid, lambda: session.is_draining)


async def told(stream: AsyncIterator[bytes]) -> set[str]:
    """The names of the next events."""
    async with asyncio.timeout(20):
        async for piece in stream:
            if b"event: " in piece:
                lines = piece.decode().splitlines()
                return {line[7:] for line in lines if line.startswith("event: ")}
    raise AssertionError("the stream ended")


@pytest.mark.parametrize(
    ("account_id", "operates", "heard"),
    [
        (None, EVERY_PART, {"broker", "platform"}),
        (None, {"platform"}, {"platform"}),
        ("ann", set(), {"platform"}),
    ],
)
async def test_a_page_is_notified_of_changes_since_it_was_rendered(
    account_id: str | None, operates: set[str], heard: set[str]
) -> None:
    drawn = now_ms() - HOUR_MS
    logs: Sequence[Log] = [
        Log(event("broker", drawn + 1)),
        Log(event("platform", drawn + 1, "ann"), event("telemetry", drawn - HOUR_MS, "ann")),
    ]
    listener = listener_of(account_id, operates=frozenset(operates))
    stream = LiveChanges(logs).stream(listener, since_ms=drawn)
    async with aclosing(stream):
        assert await told(stream) == heard


async def test_a_page_is_notified_of_later_changes_only() -> None:
    log = Log(event("broker", now_ms() - HOUR_MS))
    stream = LiveChanges([log]).stream(listener_of(None), since_ms=now_ms())
    async with aclosing(stream):
        opening = await anext(stream)
        assert opening.startswith(b"retry: 2000\nid: ")
        following = asyncio.ensure_future(told(stream))
        await asyncio.sleep(0)
        log.events = [event("telemetry", now_ms()), *log.events]
        assert await following == {"telemetry"}


@pytest.mark.parametrize("kind", ["logins.ended", "account.role_changed", "password.changed"])
async def test_a_stream_ends_with_its_session_and_says_so(kind: str) -> None:
    log, session = Log(), Session()
    live = LiveChanges([log])
    with_many = [live.stream(listener_of("bob"), since_ms=now_ms()) for _ in range(50)]
    stream = live.stream(listener_of("ann", session), since_ms=now_ms())
    async with aclosing(stream):
        for each in [*with_many, stream]:
            await anext(each)
        following = asyncio.ensure_future(told(stream))
        await asyncio.sleep(0)
        session.holds = False
        log.events = [event("platform", now_ms(), "ann", kind)]
        assert await asyncio.wait_for(following, 5) == {"ended"}  # at once, although many are open
        with pytest.raises(StopAsyncIteration):
            await anext(stream)
    for each in with_many:
        await each.aclose()


async def test_a_session_that_is_still_valid_keeps_its_stream() -> None:
    log = Log()
    stream = LiveChanges([log]).stream(listener_of("ann"), since_ms=now_ms())
    async with aclosing(stream):
        await anext(stream)
        following = asyncio.ensure_future(told(stream))
        await asyncio.sleep(0)
        log.events = [event("platform", now_ms(), "ann", "password.changed")]
        assert await following == {"platform"}


async def test_streams_end_without_an_event_when_the_server_stops() -> None:
    session = Session()
    stream = LiveChanges([Log()]).stream(listener_of(None, session), since_ms=now_ms())
    async with aclosing(stream):
        await anext(stream)
        session.is_draining = True
        async with asyncio.timeout(5):
            assert [piece async for piece in stream] == []


def test_few_pages_are_notified_at_once_and_many_one_after_another() -> None:
    assert [pace_sec(20, number) for number in range(20)] == [0] * 20
    waits = [pace_sec(200, number) for number in range(200)]
    assert 4.9 < min(waits) < 5.2
    assert 14.8 < max(waits) < 15.1
    assert 20 < sum(1 / each for each in waits) < 25  # so many are told each second
    seconds = [sum(1 for each in waits if second <= each < second + 1) for second in range(16)]
    assert max(seconds) <= 22  # and never all together
    assert (gathering_sec(5), gathering_sec(200)) == (0, 1)


async def test_a_log_that_fails_unexpectedly_is_logged_and_read_again(
    caplog: pytest.LogCaptureFixture,
) -> None:
    failing = FailingLog()
    live = LiveChanges([failing, Log()])
    async with aclosing(live.stream(listener_of(None), since_ms=now_ms())) as stream:
        await anext(stream)
        waiting = asyncio.create_task(told(stream))
        while failing.failures < 3:
            await asyncio.sleep(0.01)
        failing.is_mended = True
        failing.events.append(event("broker", now_ms()))
        assert await waiting == {"broker"}
    assert "an event log can't be read" in caplog.text


class FailingLog(Log):
    def __init__(self) -> None:
        super().__init__()
        self.is_mended = False
        self.failures = 0

    async def page(self, query: EventQuery, *, limit: int, cursor: str | None) -> Page[LoggedEvent]:
        if not self.is_mended:
            self.failures += 1
            raise ValueError("a record that can't be read")
        return await super().page(query, limit=limit, cursor=cursor)
