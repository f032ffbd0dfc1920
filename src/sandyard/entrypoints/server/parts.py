"""The parts that a process runs, from opening to closing."""

from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path

from prometheus_client import CollectorRegistry

from sandyard.bootstrap.copies import within
from sandyard.bootstrap.registry import selected_parts
from sandyard.entrypoints.server.listeners import listening
from sandyard.kit.clock import SystemClock
from sandyard.settings import Settings
from sandyard.wiring.part import Part
from sandyard.wiring.spec import BuildContext, PartSpec


class RunningParts:
    """Parts that are built one by one, each after its dependencies, and closed by the stack."""

    def __init__(
        self,
        settings: Settings,
        data_dir: Path,
        registry: CollectorRegistry,
        stack: AsyncExitStack,
    ) -> None:
        self.parts: list[Part] = []
        self._stack = stack
        self._context = BuildContext(
            within(settings, data_dir),
            data_dir,
            SystemClock(),
            registry,
            listening,
            stack,
            self.parts,
        )

    async def build(self, spec: PartSpec) -> Part:
        part = await spec.build(self._context)
        self._stack.push_async_callback(part.close)
        self.parts.append(part)
        return part


@asynccontextmanager
async def running_parts(
    settings: Settings, data_dir: Path, registry: CollectorRegistry
) -> AsyncIterator[Sequence[Part]]:
    async with AsyncExitStack() as stack:
        running = RunningParts(settings, data_dir, registry, stack)
        for spec in selected_parts(settings):
            await running.build(spec)
        yield running.parts
