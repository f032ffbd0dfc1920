"""`sandyard serve`: everything in one process, from the first lock to the last request."""

import asyncio
import gc
import logging
import os
import signal
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from prometheus_client import CollectorRegistry
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from sandyard.bootstrap.addresses import check_domain
from sandyard.bootstrap.registry import embedded_parts, get_spec, selected_parts
from sandyard.entrypoints.http.api import create_app
from sandyard.entrypoints.http.middleware import InFlight
from sandyard.entrypoints.http.operations import metrics_response
from sandyard.entrypoints.server.connections import ConnectionLimits, ConnectionPolicy
from sandyard.entrypoints.server.data_dir import locked_if, require_writable, with_secrets
from sandyard.entrypoints.server.listeners import Listener, Tls, is_loopback, require_free_port
from sandyard.entrypoints.server.otlp import open_tracing
from sandyard.entrypoints.server.parts import RunningParts
from sandyard.entrypoints.server.renewal import Renewal
from sandyard.entrypoints.server.schedule import Schedule
from sandyard.entrypoints.server.staged_start import StagedStart
from sandyard.entrypoints.server.websocket_intake import UnfinishedMessages, WebSocketIntake
from sandyard.entrypoints.server.welcome import local_url, welcome
from sandyard.kit.errors import UnavailableError
from sandyard.kit.observability.metrics import new_registry
from sandyard.settings import ServerSettings, Settings
from sandyard.wiring.part import Part

logger = logging.getLogger(__name__)

_FINISH_REQUESTS_SEC = 9.0
_FIRST_JOBS_SEC = 5.0
_YOUNG_OBJECTS = 10_000


@dataclass(frozen=True, slots=True)
class ServeOptions:
    host: str
    port: int
    data_dir: Path
    worker_of: int | None = None
    """The process id of the parent, which has checked the port and acts for all its workers."""
    tls: Tls | None = None

    @property
    def url(self) -> str:
        return local_url(self.host, self.port, scheme="http" if self.tls is None else "https")


def run(settings: Settings, options: ServeOptions) -> None:
    """Serve until SIGTERM or SIGINT."""
    import uvloop

    require_writable(options.data_dir)
    with locked_if(embedded_parts(settings), options.data_dir):
        settings = with_addresses(with_secrets(settings, options.data_dir), options)
        if options.worker_of is None:
            require_free_port(options.host, options.port)
        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            runner.run(_serve(settings, options))


def warn_of_missing(settings: Settings) -> None:
    """Warn about missing dependencies on this machine, which would make later starts fail."""
    for spec in selected_parts(settings):
        for line in spec.missing(settings):
            logger.warning("%s", line, extra={"action": "start", "part": spec.name})


def with_addresses(settings: Settings, options: ServeOptions) -> Settings:
    """The settings with the addresses derived from where it listens. Raises SettingsError if
    sandboxes are not separated from the API."""
    url = urlsplit(options.url)
    public_url = settings.platform.public_url or options.url
    domain = settings.sandboxes.sandbox_domain or f"{url.scheme}://localhost:{url.port}"
    settings = replace(
        settings,
        platform=settings.platform.model_copy(update={"public_url": public_url}),
        sandboxes=settings.sandboxes.model_copy(update={"sandbox_domain": domain}),
    )
    check_domain(settings)
    return settings


async def _serve(settings: Settings, options: ServeOptions) -> None:
    stopping = _stop_signal()
    in_flight = InFlight()
    registry = new_registry()
    async with AsyncExitStack() as stack:
        traced = await open_tracing(stack, settings.otel)
        closing = await stack.enter_async_context(AsyncExitStack())  # after their callers
        running = RunningParts(settings, options.data_dir, registry, closing)
        is_exposed = not is_loopback(options.host)
        start = StagedStart(
            settings,
            running,
            start=partial(_start_part, settings, options),
            new_app=partial(
                create_app, settings, registry=registry, in_flight=in_flight, is_exposed=is_exposed
            ),
        )
        entry = await start.open()
        listener = await _listen(
            stack,
            entry if traced is None else traced.app(entry),
            options.host,
            options.port,
            keep_alive_sec=settings.server.keep_alive_sec,
            tls=options.tls,
        )
        _limit_connections(stack, settings.server, options.port, in_flight.websockets)
        reload = None if options.tls is None else listener.reload_certificate
        _start_renewal(stack, settings, registry, stopping.set, reload)
        if settings.server.metrics_port is not None and options.worker_of is None:
            metrics = _metrics_app(running.parts, registry)
            await _listen(stack, metrics, options.host, settings.server.metrics_port)
        if options.worker_of is not None:
            watch = asyncio.create_task(_stop_with_parent(options.worker_of, stopping))
            stack.callback(watch.cancel)
        async with _beside(_finish(stack, settings, options, running, start), stopping):
            for part in running.parts:
                part.drain()
            await _drain(in_flight, settings.server.drain_sec)


@asynccontextmanager
async def _beside(work: Coroutine[Any, Any, None], stopping: asyncio.Event) -> AsyncIterator[None]:
    """Enter at shutdown; the work runs until the block is left. Raises the work's errors."""
    task = asyncio.create_task(work)
    stop = asyncio.create_task(stopping.wait())
    try:
        await asyncio.wait({task, stop}, return_when=asyncio.FIRST_COMPLETED)
        if task.done():
            await task
        await stop
        yield
    finally:
        stop.cancel()
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


async def _finish(
    stack: AsyncExitStack,
    settings: Settings,
    options: ServeOptions,
    running: RunningParts,
    start: StagedStart,
) -> None:
    """The rest of startup, after the server responds."""
    schedules = [_start_jobs(stack, running.parts)]
    schedules.append(_start_jobs(stack, await start.complete()))
    if options.worker_of is None:
        await asyncio.to_thread(warn_of_missing, settings)
        await _welcome(settings, options, running.parts, schedules)
    await start.prepare_on_demand()
    _freeze_heap()


async def _start_part(settings: Settings, options: ServeOptions, part: Part) -> None:
    await _prepare(settings, part, options)
    await part.start()


def _start_jobs(stack: AsyncExitStack, parts: Sequence[Part]) -> Schedule:
    schedule = Schedule(
        [(part.runner, job) for part in parts if part.runner for job in part.schedule]
    )
    schedule.start()
    stack.push_async_callback(schedule.stop)
    return schedule


async def _welcome(
    settings: Settings,
    options: ServeOptions,
    parts: Sequence[Part],
    schedules: Sequence[Schedule],
) -> None:
    """Print the welcome once the first jobs have run, or have taken too long."""
    with suppress(TimeoutError):
        async with asyncio.timeout(_FIRST_JOBS_SEC):
            for schedule in schedules:
                await schedule.started.wait()
    text = welcome(settings, parts, url=options.url, host=options.host, data_dir=options.data_dir)
    print(text, flush=True)  # noqa: T201 - for the person


def _freeze_heap() -> None:
    """Exclude all current objects from garbage collection; collect only what requests create."""
    gc.freeze()
    gc.set_threshold(_YOUNG_OBJECTS, *gc.get_threshold()[1:])
    gc.enable()


def _limit_connections(
    stack: AsyncExitStack, server: ServerSettings, port: int, websockets: WebSocketIntake
) -> None:
    policy = ConnectionPolicy(
        most=server.max_connections,
        most_per_address=server.max_connections_per_address,
        write_timeout_sec=server.write_timeout_sec,
        trusted=server.proxy_networks,
    )
    limits = ConnectionLimits(port, policy, find_more=UnfinishedMessages(websockets).find)
    limits.start()
    stack.push_async_callback(limits.stop)


async def _listen(
    stack: AsyncExitStack, app: Any, host: str, port: int, **options: Any
) -> Listener:
    listener = Listener(app, host=host, port=port, **options)
    await listener.start()
    stack.push_async_callback(listener.stop)
    return listener


def _start_renewal(
    stack: AsyncExitStack,
    settings: Settings,
    registry: CollectorRegistry,
    stop_serving: Callable[[], None],
    reload_certificate: Callable[[], Awaitable[None]] | None,
) -> None:
    renewal = Renewal(
        settings.secrets,
        every_sec=settings.server.secrets_refresh_sec,
        registry=registry,
        stop_serving=stop_serving,
        reload_certificate=reload_certificate,
    )
    renewal.start()
    stack.push_async_callback(renewal.stop)


async def _prepare(settings: Settings, part: Part, options: ServeOptions) -> None:
    """Prepare the engine; if a shared one is not ready, log that and start anyway."""
    spec = get_spec(part.name)
    try:
        await part.prepare()
        if spec.check_settings is not None and options.worker_of is None:
            await spec.check_settings(settings, options.data_dir)
    except UnavailableError as error:
        if spec.is_embedded(settings):
            raise
        logger.error(  # noqa: TRY400 - one clear line, no traceback
            "%s is not ready yet: %s",
            part.name,
            error.message,
            extra={"reason": error.reason, "action": "start"},
        )


async def _drain(in_flight: InFlight, drain_sec: float) -> None:
    """Report not ready, give load balancers time to notice, and let requests in progress finish."""
    in_flight.draining = True
    logger.info("stopping", extra={"in_flight": in_flight.count})
    await asyncio.sleep(drain_sec)
    with suppress(TimeoutError):
        async with asyncio.timeout(_FINISH_REQUESTS_SEC - min(drain_sec, 5)):
            while in_flight.count:  # noqa: ASYNC110 - a counter is cheaper per request
                await asyncio.sleep(0.02)


async def _stop_with_parent(parent: int, stopping: asyncio.Event) -> None:
    """A worker whose parent was killed would keep the port for nothing."""
    while os.getppid() == parent:  # noqa: ASYNC110 - there is no event for this
        await asyncio.sleep(0.5)
    stopping.set()


def _stop_signal() -> asyncio.Event:
    stopping = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stopping.set)
    return stopping


def _metrics_app(parts: Sequence[Part], registry: CollectorRegistry) -> Starlette:
    async def metrics(request: Request) -> Response:
        return await metrics_response(request, parts, registry)

    return Starlette(routes=[Route("/metrics", metrics)])
