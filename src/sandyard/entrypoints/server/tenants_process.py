"""The tenants' process: it serves the parts that do what tenants ask for, without a port."""

import asyncio
import os
import signal
import socket
from collections.abc import Callable
from contextlib import AsyncExitStack
from functools import partial

from sandyard.bootstrap.other_logs import MainProcess, OtherLog, other_logs
from sandyard.bootstrap.registry import selected_parts, tenant_parts
from sandyard.entrypoints.http.api import create_app, entry_of, prepare_on_demand
from sandyard.entrypoints.http.middleware import InFlight
from sandyard.entrypoints.server import lifecycle
from sandyard.entrypoints.server.bulkhead.calls import Answerer, Caller
from sandyard.entrypoints.server.bulkhead.channel import DRAIN, ENDED, HANG_UP, STOP, UP, Channel
from sandyard.entrypoints.server.connections import raise_descriptor_limit
from sandyard.entrypoints.server.loop_watch import LoopWatch, end_if_stalled
from sandyard.entrypoints.server.options import ServeOptions
from sandyard.entrypoints.server.otlp import open_tracing
from sandyard.entrypoints.server.parts import RunningParts
from sandyard.entrypoints.server.renewal import Renewal
from sandyard.kit.observability.metrics import new_registry
from sandyard.settings import Settings

_FINISH_REQUESTS_SEC = 2.0
_STALLED_SEC = 60


def run_tenants(
    settings: Settings, options: ServeOptions, end: socket.socket, note_up: Callable[[], None]
) -> None:
    """Serve with this end of the channel, until the main process says so."""
    import uvloop

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(_serve(settings, options, end, note_up))


async def _serve(
    settings: Settings, options: ServeOptions, end: socket.socket, note_up: Callable[[], None]
) -> None:
    async with AsyncExitStack() as stack:
        tenants = _Tenants(settings, options, stack, Channel(end))
        await tenants.open()
        note_up()
        async with lifecycle.beside(tenants.finish_start(), tenants.stopping):
            await lifecycle.finish_requests(tenants.in_flight, _FINISH_REQUESTS_SEC)


class _Tenants:
    def __init__(
        self, settings: Settings, options: ServeOptions, stack: AsyncExitStack, channel: Channel
    ) -> None:
        self._settings = settings
        self._options = options
        self._stack = stack
        self._channel = channel
        self._specs = tenant_parts(settings)
        self._registry = new_registry()
        self.in_flight = InFlight()
        self.stopping = asyncio.Event()

    async def open(self) -> None:
        settings, stack = self._settings, self._stack
        _leave_signals_to_main()
        raise_descriptor_limit(settings.server.max_connections)
        traced = await open_tracing(stack, settings.otel)
        closing = await stack.enter_async_context(AsyncExitStack())  # after their callers
        running = RunningParts(settings, self._options.data_dir, self._registry, closing)
        await lifecycle.start_parts(running, settings, self._options, self._specs)
        self._parts = running.parts
        self._app = create_app(
            settings,
            self._parts,
            registry=self._registry,
            in_flight=self.in_flight,
            main=self._main(closing),
        )
        self._renewal = Renewal(
            settings.secrets,
            every_sec=settings.server.secrets_refresh_sec,
            registry=self._registry,
            stop_serving=lambda: None,
        )
        lifecycle.in_background(stack, self._renewal.renew_forever)
        lifecycle.in_background(stack, LoopWatch(self._registry, process="tenants").watch_forever)
        lifecycle.in_background(stack, partial(end_if_stalled, _STALLED_SEC))
        entry = entry_of(self._app)
        answerer = Answerer(entry if traced is None else traced.app(entry), inner=entry.call_inside)
        self._channel.listen(on_call=answerer.accept, on_word=self._obey)
        await self._channel.tell(UP)

    def _main(self, stack: AsyncExitStack) -> MainProcess:
        theirs = [spec for spec in selected_parts(self._settings) if spec not in self._specs]
        logs = other_logs(self._settings, self._options.data_dir, theirs)
        return MainProcess(
            Caller(self._channel.connect), [OtherLog(each, stack) for each in logs.values()]
        )

    def _obey(self, word: bytes) -> None:
        if word == DRAIN:
            self.in_flight.draining = True
            for part in self._parts:
                part.drain()
        elif word == STOP:
            self.stopping.set()
        elif word == HANG_UP:
            self._renewal.hang_up()
        elif word == ENDED:
            os._exit(1)

    async def finish_start(self) -> None:
        """The rest of the start, after it responds."""
        lifecycle.start_jobs(self._stack, self._parts)
        if self._options.worker_of is None:
            await asyncio.to_thread(lifecycle.warn_of_missing, self._settings, self._specs)
        await prepare_on_demand(self._app)
        lifecycle.freeze_heap()


def _leave_signals_to_main() -> None:
    """A terminal and some service managers send these to all processes. Ignoring them would be
    inherited by the programs that this process starts."""
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, lambda: None)
