"""What both processes of a server do between their start and their end."""

import asyncio
import gc
import logging
import signal
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Iterable, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from typing import Any

from sandyard.bootstrap.registry import get_spec
from sandyard.entrypoints.http.middleware import InFlight
from sandyard.entrypoints.server.options import ServeOptions
from sandyard.entrypoints.server.parts import RunningParts
from sandyard.entrypoints.server.schedule import Schedule
from sandyard.kit.errors import UnavailableError
from sandyard.settings import Settings
from sandyard.wiring.part import Part
from sandyard.wiring.spec import PartSpec

logger = logging.getLogger(__name__)

_YOUNG_OBJECTS = 10_000


def warn_of_missing(settings: Settings, specs: Iterable[PartSpec]) -> None:
    """Warn about missing dependencies on this machine, which would make later starts fail."""
    for spec in specs:
        for line in spec.missing(settings):
            logger.warning("%s", line, extra={"action": "start", "part": spec.name})


async def start_parts(
    running: RunningParts, settings: Settings, options: ServeOptions, specs: Sequence[PartSpec]
) -> None:
    for spec in specs:
        part = await running.build(spec)
        await _prepare(settings, part, options)
        await part.start()


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


def start_jobs(stack: AsyncExitStack, parts: Sequence[Part]) -> Schedule:
    schedule = Schedule(
        [(part.runner, job) for part in parts if part.runner for job in part.schedule]
    )
    schedule.start()
    stack.push_async_callback(schedule.stop)
    return schedule


@asynccontextmanager
async def beside(work: Coroutine[Any, Any, None], stopping: asyncio.Event) -> AsyncIterator[None]:
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


def in_background(stack: AsyncExitStack, work: Callable[[], Awaitable[None]]) -> None:
    """Run it until the stack is closed; after an unexpected error it starts again."""
    task = asyncio.create_task(keep_running(work))
    stack.push_async_callback(asyncio.wait, [task])
    stack.callback(task.cancel)


async def keep_running(work: Callable[[], Awaitable[None]], *, pause_sec: float = 1.0) -> None:
    """Run it to its end; after an unexpected error, which is logged, from the beginning."""
    while True:
        try:
            return await work()
        except Exception:
            logger.exception("work in the background failed, and starts again")
        await asyncio.sleep(pause_sec)


async def finish_requests(in_flight: InFlight, within_sec: float) -> None:
    """Wait until no request is in progress, or until the time is over."""
    with suppress(TimeoutError):
        async with asyncio.timeout(within_sec):
            while in_flight.count:  # noqa: ASYNC110 - a counter is cheaper per request
                await asyncio.sleep(0.02)


def freeze_heap() -> None:
    """Exclude all current objects from garbage collection; collect only what requests create."""
    gc.freeze()
    gc.set_threshold(_YOUNG_OBJECTS, *gc.get_threshold()[1:])
    gc.enable()


def stop_signal() -> asyncio.Event:
    stopping = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stopping.set)
    return stopping
