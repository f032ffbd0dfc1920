"""The parts that a process runs, from opening to closing."""

from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path

from prometheus_client import CollectorRegistry

from sandyard.bootstrap.registry import selected_parts
from sandyard.entrypoints.server.listeners import listening
from sandyard.kit.clock import SystemClock
from sandyard.settings import Settings
from sandyard.wiring.engines import SqlEngine
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
        self._engines: dict[str, SqlEngine] = {}
        self._stack = stack
        self._context = BuildContext(
            settings,
            data_dir,
            SystemClock(),
            registry,
            listening,
            stack,
            self.parts,
            self._engines,
        )

    async def open_engine(self, spec: PartSpec) -> SqlEngine:
        """The engine of a part that is built later."""
        assert spec.engine is not None  # noqa: S101 - `late_parts` are those that have one
        engine = spec.engine(self._context.settings, self._context.data_dir)
        await engine.upgrade()
        self._engines[spec.name] = engine
        return engine

    async def build(self, spec: PartSpec) -> Part:
        part = await spec.build(self._context)
        self._stack.push_async_callback(part.close)
        self.parts.append(part)
        return part


@asynccontextmanager
async def running_parts(
    settings: Settings, data_dir: Path, registry: CollectorRegistry
) -> AsyncIterator[Sequence[Part]]:
    """Every part that PARTS selects."""
    async with AsyncExitStack() as stack:
        running = RunningParts(settings, data_dir, registry, stack)
        for spec in selected_parts(settings):
            await running.build(spec)
        yield running.parts
