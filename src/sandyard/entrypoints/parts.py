"""The parts that a process runs, from opened to closed."""

from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path

from prometheus_client import CollectorRegistry

from sandyard.bootstrap.part import Part
from sandyard.bootstrap.registry import selected_parts
from sandyard.bootstrap.spec import BuildContext
from sandyard.entrypoints.server import listening
from sandyard.kit.clock import SystemClock
from sandyard.settings import Settings


@asynccontextmanager
async def running_parts(
    settings: Settings, data_dir: Path, registry: CollectorRegistry
) -> AsyncIterator[Sequence[Part]]:
    """Every part that PARTS selects, each after those that it needs."""
    parts: list[Part] = []
    async with AsyncExitStack() as stack:
        context = BuildContext(settings, data_dir, SystemClock(), registry, listening, stack, parts)
        for spec in selected_parts(settings):
            part = await spec.build(context)
            stack.push_async_callback(part.close)
            parts.append(part)
        yield parts
