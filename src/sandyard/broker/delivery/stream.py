"""Delivers one part's log to one sink.

The log is read in batches. Events of one subject are sent in order, those of different subjects
concurrently; so a subject whose event fails blocks only itself, until too many batches are open.
The stored position is the end of the last batch that has no open batch before it: after a crash
some events are sent again, and none is skipped.
"""

import asyncio
import logging
import random
from collections import defaultdict, deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, Generic, TypeVar

from sandyard.broker.delivery.errors import SinkError
from sandyard.broker.delivery.model import RetryPolicy, Sink, StreamState, wants
from sandyard.broker.delivery.ports import DeliveryStore
from sandyard.kit.changes.events import EventLog, LoggedEvent
from sandyard.kit.clock import Clock
from sandyard.kit.wired import wired

logger = logging.getLogger(__name__)

S = TypeVar("S")

_BATCH = 100
_MOST_OPEN = 10
_SAVE_IDLE_SEC = 60.0


class SinkStoppedError(Exception):
    """The sink was given up; nothing more is sent to it."""


@dataclass(frozen=True, slots=True)
class StreamPolicy:
    retry: RetryPolicy
    poll_sec: float = 1
    """How long to wait at the end of the log before it is read again."""
    on_sent: Callable[[str, str], None] = lambda _sink, _outcome: None
    """Called after each attempt with the sink's name, and `delivered` or `failed`."""


@dataclass(slots=True)
class _Batch:
    end: str | None
    size: int
    left: int


@wired
class SinkStream(Generic[S]):
    """What delivers one part's log to a sink has. `delivered` counts the events that the sink
    accepted."""

    sink: S
    log: EventLog
    store: DeliveryStore
    clock: Clock
    policy: StreamPolicy

    def __post_init__(self) -> None:
        self.delivered = 0

    def _now_ms(self) -> int:
        return int(self.clock.now() * 1000)


class Stream(SinkStream[Sink]):
    def __init__(self, sink: Sink, log: EventLog, *arguments: Any, **options: Any) -> None:
        super().__init__(sink, log, *arguments, **options)
        self._chains: dict[str, deque[tuple[LoggedEvent, _Batch]]] = defaultdict(deque)
        self._open: deque[_Batch] = deque()
        self._slots = asyncio.Semaphore(sink.parallel)
        self._batch_done = asyncio.Event()
        self._state = StreamState(sink.name, log.part, 0, None)
        self._saved_at = 0.0

    async def follow(self) -> None:
        """Send new events until cancelled. Raises UnavailableError if an engine is unavailable, and
        SinkStoppedError if the sink was given up."""
        await self._run(to_end=False)

    async def drain(self) -> None:
        """Send all current events. Raises SinkError at the first one that the sink does not
        accept."""
        await self._run(to_end=True)

    async def _run(self, *, to_end: bool) -> None:
        self._state = await self._begin()
        try:
            async with asyncio.TaskGroup() as tasks:
                await self._pump(tasks, to_end=to_end)
        except ExceptionGroup as trouble:
            await self.store.save_stream(self._state)  # a task recording a failure was cancelled
            raise trouble.exceptions[0] from trouble

    async def _pump(self, tasks: asyncio.TaskGroup, *, to_end: bool) -> None:
        read_to = self._state.position
        while True:
            self._batch_done.clear()
            read_to, is_end = await self._fill(read_to, tasks, is_retried=not to_end)
            await self._advance()
            if to_end and is_end and not self._open:
                return await self.store.save_stream(self._state)
            if is_end or len(self._open) == _MOST_OPEN:
                await self._wait(self.policy.poll_sec if is_end else None)

    async def _begin(self) -> StreamState:
        """The position of the last run; the first run stores its start before it sends."""
        state = await self.store.find_stream(self.sink.name, self.log.part)
        if state is None:
            since_ms = self.sink.since_ms or self._now_ms()
            position = await self.log.position_before(since_ms)
            state = StreamState(self.sink.name, self.log.part, since_ms, position)
            await self.store.save_stream(state)
        return state

    async def _fill(
        self, position: str | None, tasks: asyncio.TaskGroup, *, is_retried: bool
    ) -> tuple[str | None, bool]:
        """Read on while few batches are open; returns the position, and whether it is the log's
        end."""
        while len(self._open) < _MOST_OPEN:
            events, end = await self.log.read_after(position, limit=_BATCH)
            if end != position:
                self._take(events, end, tasks, is_retried=is_retried)
            position = end
            if len(events) < _BATCH:
                return position, True
        return position, False

    def _take(
        self,
        events: Sequence[LoggedEvent],
        end: str | None,
        tasks: asyncio.TaskGroup,
        *,
        is_retried: bool,
    ) -> None:
        state, kinds = self._state, self.sink.kinds
        wanted = [e for e in events if state.is_due(e) and wants(kinds, e.event.kind)]
        batch = _Batch(end, len(wanted), len(wanted))
        self._open.append(batch)
        for logged in wanted:
            subject = logged.event.subject
            self._chains[subject].append((logged, batch))
            if len(self._chains[subject]) == 1:
                tasks.create_task(self._send_chain(subject, is_retried=is_retried))

    async def _send_chain(self, subject: str, *, is_retried: bool) -> None:
        chain = self._chains[subject]
        while chain:
            logged, batch = chain[0]
            await self._send(logged, is_retried=is_retried)
            self.delivered += 1
            chain.popleft()
            batch.left -= 1
            if not batch.left:
                self._batch_done.set()
        del self._chains[subject]

    async def _send(self, logged: LoggedEvent, *, is_retried: bool) -> None:
        failures = 0
        while True:
            try:
                async with self._slots:
                    await self.sink.send(logged)
            except SinkError as error:
                failures += 1
                self.policy.on_sent(self.sink.name, "failed")
                await self._failed(error)
                if not is_retried:
                    raise
            else:
                self.policy.on_sent(self.sink.name, "delivered")
                return
            chance = random.random()  # noqa: S311 - no secret
            await asyncio.sleep(self.policy.retry.delay(failures, chance))

    async def _failed(self, error: SinkError) -> None:
        """Record the start of the failures; give the sink up if it was too long ago."""
        now_ms = self._now_ms()
        since = self._state.failing_since_ms
        if since is None:
            self._state = replace(self._state, failing_since_ms=now_ms, last_error=error.message)
            await self.store.save_stream(self._state)
            self._log_failure(logging.WARNING, error.message)
        elif self.policy.retry.is_over(failing_since_ms=since, now_ms=now_ms):
            hours = self.policy.retry.give_up_sec / 3600
            if await self.sink.give_up(f"failed for {hours:g} hours: {error.message}"):
                raise SinkStoppedError
            self._log_failure(logging.ERROR, error.message)

    def _log_failure(self, level: int, message: str) -> None:
        about = {"action": "deliver", "sink": self.sink.name, "part": self.log.part}
        logger.log(level, "a sink does not take events: %s", message, extra=about)

    async def _wait(self, seconds: float | None) -> None:
        """Wait until a batch is done, or it is time to read on."""
        try:
            async with asyncio.timeout(seconds):
                await self._batch_done.wait()
        except TimeoutError:
            return

    async def _advance(self) -> None:
        """Store the position after the completed batches; periodically also if they had nothing to
        send."""
        done = []
        while self._open and not self._open[0].left:
            done.append(self._open.popleft())
        if not done:
            return
        self._state = replace(
            self._state, position=done[-1].end, failing_since_ms=None, last_error=None
        )
        now = self.clock.now()
        if any(each.size for each in done) or now - self._saved_at >= _SAVE_IDLE_SEC:
            await self.store.save_stream(self._state)
            self._saved_at = now
