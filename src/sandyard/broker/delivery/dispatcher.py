"""Runs each sink in one process at a time, under its own job lease and independent of the
others."""

import asyncio
import logging
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, AsyncExitStack, suppress
from dataclasses import dataclass
from functools import partial
from typing import Any, Protocol

from sandyard.broker.delivery.model import Webhook
from sandyard.broker.delivery.ports import DeliveryStore
from sandyard.broker.delivery.stream import SinkStoppedError
from sandyard.kit.changes.events import EventLog, LoggedEvent
from sandyard.kit.clock import Clock
from sandyard.kit.errors import UnavailableError
from sandyard.kit.jobs import Job, JobRunner
from sandyard.kit.wired import wired

logger = logging.getLogger(__name__)

OpenLog = Callable[[], AbstractAsyncContextManager[EventLog]]

_POLL_SEC = 5.0
"""How often a process polls for new, changed and removed webhooks."""
_TRY_SEC = 5.0
"""How soon to retry a sink that another process has, or whose engine is unavailable."""
ATTEMPTS_KEPT_SEC = 7 * 24 * 3600


class Logs:
    """The event logs of the parts, each opened when it is first read. `own` is already open; the
    others belong to parts that may use another engine."""

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


class LogStream(Protocol):
    """Delivers one part's log to one sink."""

    delivered: int

    async def follow(self) -> None: ...

    async def drain(self) -> None: ...


@dataclass(frozen=True, slots=True)
class Route:
    """A sink, and how a part's log is delivered to it."""

    name: str
    version: int
    """Changes with the sink: streams of an older version end."""
    stream: Callable[[EventLog], LogStream]
    close: Callable[[], Any]


@dataclass(slots=True)
class DeliverReport:
    delivered: int = 0
    failing: int = 0
    """Sinks that did not accept everything."""


@wired
class Dispatcher:
    """`fixed` are the sinks from the settings; `webhook_route` creates the route of a webhook, None
    if webhooks are off."""

    store: DeliveryStore
    logs: Logs
    runner: JobRunner
    clock: Clock
    fixed: Sequence[Callable[[], Route]]
    webhook_route: Callable[[Webhook], Route] | None

    def __post_init__(self) -> None:
        self._streams: dict[str, tuple[int, asyncio.Task[None]]] = {}
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        if self._task is None:
            self._task = asyncio.create_task(self._supervise())

    async def stop(self) -> None:
        tasks = [task for _, task in self._streams.values()]
        tasks += [] if self._task is None else [self._task]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        self._streams, self._task = {}, None

    async def run(self) -> DeliverReport:
        """Deliver all current events to every sink that no process has; failed ones wait for the
        next run."""
        report = DeliverReport()
        routes = await self._routes()
        await asyncio.gather(*(self._drain(route, report) for route in routes))
        cutoff = self.clock.now() - ATTEMPTS_KEPT_SEC
        await self.store.drop_attempts(before_ms=int(cutoff * 1000))
        return report

    async def _drain(self, route: Route, report: DeliverReport) -> None:
        async def drain() -> None:
            streams = [route.stream(log) for log in await self._open_logs()]
            results = await asyncio.gather(
                *(each.drain() for each in streams), return_exceptions=True
            )
            report.delivered += sum(each.delivered for each in streams)
            report.failing += any(isinstance(each, Exception) for each in results)

        try:
            await self.runner.run_if_due(_job(route, drain), interval_sec=0)
        finally:
            await route.close()

    async def _open_logs(self) -> list[EventLog]:
        found = []
        for part in self.logs.parts:
            with suppress(UnavailableError):
                found.append(await self.logs.get(part))
        return found

    async def _routes(self) -> list[Route]:
        routes = [make() for make in self.fixed]
        if self.webhook_route is not None:
            webhooks = await self.store.webhooks()
            routes += [self.webhook_route(each) for each in webhooks if each.is_enabled]
        return routes

    async def _supervise(self) -> None:
        while True:
            try:
                self._compare(await self._routes())
            except UnavailableError as error:
                logger.warning("webhooks can't be read: %s", error.message)
            await asyncio.sleep(_POLL_SEC)

    def _compare(self, routes: Sequence[Route]) -> None:
        """Stop the streams of removed or changed sinks, and start those of new ones."""
        wanted = {route.name: route for route in routes}
        for name, (version, task) in list(self._streams.items()):
            route = wanted.get(name)
            if route is None or route.version != version or task.done():
                task.cancel()
                del self._streams[name]
        for route in routes:
            if route.name not in self._streams:
                task = asyncio.create_task(self._keep(route))
                self._streams[route.name] = route.version, task

    async def _keep(self, route: Route) -> None:
        """Follow all logs while this process has the sink."""
        try:
            while True:
                try:
                    job = _job(route, partial(self._follow_all, route))
                    await self.runner.run_if_due(job, interval_sec=0)
                except UnavailableError as error:
                    logger.warning(
                        "delivery stopped: %s", error.message, extra={"sink": route.name}
                    )
                except SinkStoppedError:
                    return
                await asyncio.sleep(_TRY_SEC)
        finally:
            await route.close()

    async def _follow_all(self, route: Route) -> None:
        try:
            async with asyncio.TaskGroup() as tasks:
                for part in self.logs.parts:
                    tasks.create_task(self._follow(route, part))
        except ExceptionGroup as trouble:
            raise trouble.exceptions[0] from trouble

    async def _follow(self, route: Route, part: str) -> None:
        """An unavailable engine does not delay the events of other parts."""
        while True:
            try:
                await route.stream(await self.logs.get(part)).follow()
            except UnavailableError as error:
                logger.warning(
                    "events can't be delivered: %s",
                    error.message,
                    extra={"sink": route.name, "part": part, "reason": error.reason},
                )
                await asyncio.sleep(_TRY_SEC)


def _job(route: Route, run: Callable[[], Any]) -> Job[None]:
    return Job(f"deliver {route.name}", 0, run)
