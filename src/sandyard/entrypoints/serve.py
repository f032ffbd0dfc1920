"""`sandyard serve`: everything in one process, from the first lock to the last request."""

import asyncio
import logging
import os
import shlex
import signal
from contextlib import AsyncExitStack, nullcontext, suppress
from dataclasses import dataclass
from pathlib import Path

from prometheus_client import CollectorRegistry
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from sandyard.bootstrap import BrokerPart, build_broker, is_embedded
from sandyard.entrypoints.api import create_app, metrics_response
from sandyard.entrypoints.data_dir import locked, secret_file, with_secrets
from sandyard.entrypoints.middleware import InFlight
from sandyard.entrypoints.provider import SIMULATED_SANDBOXES, ProviderAddress, provider_address
from sandyard.entrypoints.server import Listener, require_free_port
from sandyard.entrypoints.worker import Schedule
from sandyard.kit.errors import UnavailableError
from sandyard.kit.metrics import new_registry
from sandyard.settings import Settings

logger = logging.getLogger(__name__)

_FINISH_REQUESTS_SEC = 9.0
_FIRST_SYNC_SEC = 5.0


@dataclass(frozen=True, slots=True)
class ServeOptions:
    host: str
    port: int
    data_dir: Path
    worker_of: int | None = None
    """The process id of the parent that has probed the port and speaks for all its workers."""


def run(settings: Settings, options: ServeOptions) -> None:
    """Serve until SIGTERM or SIGINT."""
    import uvloop

    embedded = is_embedded(settings)
    options.data_dir.mkdir(parents=True, exist_ok=True)
    with locked(options.data_dir) if embedded else nullcontext():
        settings = with_secrets(settings, options.data_dir, may_invent=embedded)
        if options.worker_of is None:
            require_free_port(options.host, options.port)
        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            runner.run(_serve(settings, options))


async def _serve(settings: Settings, options: ServeOptions) -> None:
    stopping = _stop_signal()
    in_flight = InFlight()
    registry = new_registry()
    async with AsyncExitStack() as stack:
        provider = await stack.enter_async_context(
            provider_address(settings.provider, options.data_dir)
        )
        broker = build_broker(
            settings,
            data_dir=options.data_dir,
            provider_url=provider.url,
            provider_token=provider.token,
            registry=registry,
        )
        stack.push_async_callback(broker.close)
        await _prepare(settings, broker)
        app = create_app(settings, broker, registry=registry, in_flight=in_flight)
        listener = Listener(app, host=options.host, port=options.port)
        await listener.start()
        stack.push_async_callback(listener.stop)
        if settings.server.metrics_port is not None and options.worker_of is None:
            metrics = _metrics_app(broker, registry)
            extra = Listener(metrics, host=options.host, port=settings.server.metrics_port)
            await extra.start()
            stack.push_async_callback(extra.stop)
        jobs = broker.jobs
        schedule = Schedule(jobs.runner, [jobs.sync_job, jobs.cleanup_job, jobs.expiry_job])
        schedule.start()
        stack.push_async_callback(schedule.stop)
        if options.worker_of is None:
            with suppress(TimeoutError):
                await asyncio.wait_for(schedule.started.wait(), _FIRST_SYNC_SEC)
            print(welcome(settings, options, provider, broker.pool.engine), flush=True)  # noqa: T201 - for the person
        else:
            watch = asyncio.create_task(_stop_with_parent(options.worker_of, stopping))
            stack.callback(watch.cancel)
        await stopping.wait()
        await _drain(in_flight, settings.server.drain_sec)


async def _prepare(settings: Settings, broker: BrokerPart) -> None:
    """Make the engine ready; with a shared one that is not, start all the same and say so."""
    try:
        await broker.pool.prepare()
    except UnavailableError as error:
        if is_embedded(settings):
            raise
        logger.error(  # noqa: TRY400 - one clear line, no traceback
            "not ready yet: %s", error.message, extra={"reason": error.reason, "action": "start"}
        )


async def _drain(in_flight: InFlight, drain_sec: float) -> None:
    """Say not ready, give load balancers time to see it, and let the requests in flight finish."""
    in_flight.draining = True
    logger.info("stopping", extra={"in_flight": in_flight.count})
    await asyncio.sleep(drain_sec)
    with suppress(TimeoutError):
        async with asyncio.timeout(_FINISH_REQUESTS_SEC - min(drain_sec, 5)):
            while in_flight.count:  # noqa: ASYNC110 - a counter is cheaper per request
                await asyncio.sleep(0.02)


async def _stop_with_parent(parent: int, stopping: asyncio.Event) -> None:
    """A worker whose parent was killed would hold the port for nobody."""
    while os.getppid() == parent:  # noqa: ASYNC110 - there is no event for this
        await asyncio.sleep(0.5)
    stopping.set()


def _stop_signal() -> asyncio.Event:
    stopping = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stopping.set)
    return stopping


def _metrics_app(broker: BrokerPart, registry: CollectorRegistry) -> Starlette:
    async def metrics(_request: Request) -> Response:
        return await metrics_response(broker, registry)

    return Starlette(routes=[Route("/metrics", metrics)])


def welcome(
    settings: Settings, options: ServeOptions, provider: ProviderAddress, engine: str
) -> str:
    """Where everything is, with lines to paste that never show a token."""
    host = "127.0.0.1" if options.host in ("0.0.0.0", "::") else options.host  # noqa: S104
    url = f"http://{f'[{host}]' if ':' in host else host}:{options.port}"
    calls = url + settings.broker.api_base_path
    track, admin = (
        f'-H "Authorization: Bearer {_token_for_shell(options.data_dir, name)}"'
        for name in ("broker_api_token", "broker_admin_token")
    )
    where = (
        f"simulated ({SIMULATED_SANDBOXES} sandboxes); faults at {provider.url}/_sim"
        if provider.is_simulated
        else provider.url
    )
    engine = f"SQLite in {options.data_dir}" if is_embedded(settings) else engine
    return f"""
Sandyard is ready at {url} (API: {url}/docs)
  engine    {engine}
  provider  {where}

Lease a sandbox, look at the pool, see the metrics:
  curl -X POST {calls}/allocate {track} -H "X-Track-ID: demo"
  curl {calls}/admin/stats {admin}
  curl {url}/metrics
"""


def _token_for_shell(data_dir: Path, name: str) -> str:
    path = secret_file(data_dir, name)
    return f"$(cat {shlex.quote(str(path))})" if path.exists() else f"${name.upper()}"
