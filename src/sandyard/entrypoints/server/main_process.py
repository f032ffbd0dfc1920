"""The main process: it has the port, and serves all parts but those of the tenants' process."""

import asyncio
import logging
import os
from collections.abc import Sequence
from contextlib import AsyncExitStack, suppress
from functools import partial
from typing import Any

from prometheus_client import CollectorRegistry
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route
from starlette.types import ASGIApp

from sandyard.bootstrap.registry import selected_parts, tenant_parts
from sandyard.entrypoints.http.api import create_app, entry_of, own_requests, prepare_on_demand
from sandyard.entrypoints.http.middleware import InFlight
from sandyard.entrypoints.http.operations import find_troubles, metrics_response
from sandyard.entrypoints.http.other_parts import OtherParts
from sandyard.entrypoints.server import lifecycle
from sandyard.entrypoints.server.bulkhead.keeper import Keeper
from sandyard.entrypoints.server.bulkhead.tenants import Bulkhead, TenantsProcess
from sandyard.entrypoints.server.connections import ConnectionLimits, ConnectionPolicy
from sandyard.entrypoints.server.listeners import Listener, is_loopback
from sandyard.entrypoints.server.loop_watch import LoopWatch
from sandyard.entrypoints.server.options import ServeOptions
from sandyard.entrypoints.server.otlp import open_tracing
from sandyard.entrypoints.server.parts import RunningParts
from sandyard.entrypoints.server.renewal import Renewal
from sandyard.entrypoints.server.schedule import Schedule
from sandyard.entrypoints.server.websocket_intake import UnfinishedMessages, WebSocketIntake
from sandyard.entrypoints.server.welcome import ready, welcome
from sandyard.kit.observability.metrics import new_registry
from sandyard.kit.wired import wired
from sandyard.settings import ServerSettings, Settings
from sandyard.wiring.part import Part

logger = logging.getLogger(__name__)

_FINISH_REQUESTS_SEC = 9.0
_FIRST_JOBS_SEC = 5.0
_READY_CHECK_SEC = 2.0


async def serve_main(settings: Settings, options: ServeOptions, keeper: Keeper | None) -> int:
    """Serve until SIGTERM or SIGINT; returns the exit code. Without a keeper there is no other
    process, and this one serves all parts."""
    stopping = lifecycle.stop_signal()
    tenants = None if keeper is None else TenantsProcess(keeper, on_end=stopping.set)
    async with AsyncExitStack() as stack:
        main = _Main(settings, options, stack, stopping, tenants)
        await main.open()
        async with lifecycle.beside(main.finish_start(), stopping):
            await main.drain()
    return 0 if tenants is None else tenants.exit_code


@wired
class _Main:
    settings: Settings
    options: ServeOptions
    stack: AsyncExitStack
    stopping: asyncio.Event
    tenants: TenantsProcess | None

    def __post_init__(self) -> None:
        apart = () if self.tenants is None else tenant_parts(self.settings)
        self._own = [spec for spec in selected_parts(self.settings) if spec not in apart]
        engines = {spec.name: spec.engine_of(self.settings) for spec in apart}
        self._others = None if self.tenants is None else OtherParts(self.tenants.caller, engines)
        self._in_flight = InFlight()
        self._registry = new_registry()

    async def open(self) -> None:
        settings, options, stack = self.settings, self.options, self.stack
        traced = await open_tracing(stack, settings.otel)
        closing = await stack.enter_async_context(AsyncExitStack())  # after their callers
        running = RunningParts(settings, options.data_dir, self._registry, closing)
        if self.tenants is not None:
            stack.push_async_callback(self.tenants.stop)
        await lifecycle.start_parts(running, settings, options, self._own)
        self._parts = running.parts
        self._app = create_app(
            settings,
            self._parts,
            registry=self._registry,
            in_flight=self._in_flight,
            is_exposed=not is_loopback(options.host),
            tenants=self._others,
        )
        own = entry_of(self._app)
        entry = self._with_tenants(own if traced is None else traced.app(own))
        server, tls = settings.server, options.tls
        listener = await _listen(
            *(stack, entry, options.host, options.port),
            keep_alive_sec=server.keep_alive_sec,
            tls=tls,
        )
        limits = _connection_limits(server, options.port, self._in_flight.websockets)
        lifecycle.in_background(stack, limits.enforce_forever)
        lifecycle.in_background(stack, LoopWatch(self._registry, process="main").watch_forever)
        self._renew(None if tls is None else listener)
        if server.metrics_port is not None:  # workers share it, as they share the other
            metrics = _metrics_app(self._parts, self._registry, self._others)
            await _listen(stack, metrics, options.host, server.metrics_port)
        if options.worker_of is not None:
            lifecycle.in_background(
                stack, partial(_stop_with_parent, options.worker_of, self.stopping)
            )

    def _with_tenants(self, own: ASGIApp) -> ASGIApp:
        tenants = self.tenants
        if tenants is None:
            return own
        tenants.listen(entry_of(self._app).call_inside)
        return Bulkhead(own, tenants.caller, own_requests(self._app), self._in_flight)

    def _renew(self, with_certificate: Listener | None) -> None:
        listener, tenants = with_certificate, self.tenants
        renewal = Renewal(
            self.settings.secrets,
            every_sec=self.settings.server.secrets_refresh_sec,
            registry=self._registry,
            stop_serving=self.stopping.set,
            reload_certificate=None if listener is None else listener.reload_certificate,
            tell_others=None if tenants is None else tenants.hang_up,
        )
        lifecycle.in_background(self.stack, renewal.renew_forever)

    async def finish_start(self) -> None:
        """The rest of the start, after the server responds."""
        schedule = lifecycle.start_jobs(self.stack, self._parts)
        is_announced = True
        if self.options.worker_of is None:
            await asyncio.to_thread(lifecycle.warn_of_missing, self.settings, self._own)
            is_announced = await self._welcome(schedule)
        await prepare_on_demand(self._app)
        lifecycle.freeze_heap()
        while not is_announced:
            await asyncio.sleep(_READY_CHECK_SEC)
            if is_announced := not await find_troubles(self._parts, self._others):
                print(ready(self.options.url), flush=True)  # noqa: T201 - for the person

    async def _welcome(self, schedule: Schedule) -> bool:
        """Print the welcome once all parts are there and the first jobs have run, or have taken too
        long; returns whether it says that the server is ready."""
        with suppress(TimeoutError):
            async with asyncio.timeout(_FIRST_JOBS_SEC):
                await schedule.started.wait()
                if self.tenants is not None:
                    await self.tenants.is_up.wait()
        troubles = await find_troubles(self._parts, self._others)
        text = await asyncio.to_thread(
            welcome,
            self.settings,
            self._parts,
            troubles={part: trouble.message for part, trouble in troubles.items()},
            url=self.options.url,
            host=self.options.host,
            data_dir=self.options.data_dir,
        )
        print(text, flush=True)  # noqa: T201 - for the person
        return not troubles

    async def drain(self) -> None:
        """Report not ready, give load balancers time to notice, and let requests in progress
        finish."""
        if self.tenants is not None and self.tenants.exit_code:
            return
        for part in self._parts:
            part.drain()
        self._in_flight.draining = True
        if self.tenants is not None:
            await self.tenants.drain()
        logger.info("stopping", extra={"in_flight": self._in_flight.count})
        drain_sec = self.settings.server.drain_sec
        await asyncio.sleep(drain_sec)
        await lifecycle.finish_requests(self._in_flight, _FINISH_REQUESTS_SEC - min(drain_sec, 5))


def _connection_limits(
    server: ServerSettings, port: int, websockets: WebSocketIntake
) -> ConnectionLimits:
    policy = ConnectionPolicy(
        most=server.max_connections,
        most_per_address=server.max_connections_per_address,
        write_timeout_sec=server.write_timeout_sec,
        trusted=server.proxy_networks,
    )
    return ConnectionLimits(port, policy, find_more=UnfinishedMessages(websockets).find)


async def _listen(
    stack: AsyncExitStack, app: Any, host: str, port: int, **options: Any
) -> Listener:
    listener = Listener(app, host=host, port=port, **options)
    await listener.start()
    stack.push_async_callback(listener.stop)
    return listener


async def _stop_with_parent(parent: int, stopping: asyncio.Event) -> None:
    """A worker whose parent was killed would keep the port for nothing."""
    while os.getppid() == parent:  # noqa: ASYNC110 - there is no event for this
        await asyncio.sleep(0.5)
    stopping.set()


def _metrics_app(
    parts: Sequence[Part], registry: CollectorRegistry, others: OtherParts | None
) -> Starlette:
    async def metrics(request: Request) -> Response:
        return await metrics_response(request, parts, registry, others)

    return Starlette(routes=[Route("/metrics", metrics)])
