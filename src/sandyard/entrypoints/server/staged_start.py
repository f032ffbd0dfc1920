"""Starts a server in two stages: what it needs to be ready, and the rest after the port is open."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence

from fastapi import FastAPI

from sandyard.bootstrap.registry import late_parts, selected_parts
from sandyard.entrypoints.http.api import entry_of, prepare_on_demand
from sandyard.entrypoints.http.middleware import RequestMiddleware
from sandyard.entrypoints.server.parts import RunningParts
from sandyard.settings import Settings
from sandyard.wiring.part import Part
from sandyard.wiring.spec import PartSpec


class StagedStart:
    """Importing and wiring the late parts is a third of the startup time, and they are not needed
    in the first half second. Their engines are prepared and checked in the first stage like all
    others, so that ready means the same; a request for a late part waits for the second."""

    def __init__(
        self,
        settings: Settings,
        running: RunningParts,
        *,
        start: Callable[[Part], Awaitable[None]],
        new_app: Callable[..., FastAPI],
    ) -> None:
        self._late = late_parts(settings)
        self._early = [spec for spec in selected_parts(settings) if spec not in self._late]
        self._running = running
        self._start = start
        self._new_app = new_app

    async def open(self) -> RequestMiddleware:
        """The middleware to open a port with; it stays in place."""
        for spec in self._early:
            await self._add(spec)
        engines = [await self._running.open_engine(spec) for spec in self._late]
        self._app = self._new_app([*self._running.parts], awaited=engines)
        return entry_of(self._app)

    async def complete(self) -> Sequence[Part]:
        """Add the late parts."""
        if not self._late:
            return ()
        added = [await self._add(spec) for spec in self._late]
        entry = entry_of(self._app)
        parts = [*self._running.parts]
        self._app = await asyncio.to_thread(self._new_app, parts, requests=entry.metrics)
        entry.complete(entry_of(self._app))
        return added

    async def prepare_on_demand(self) -> None:
        """Build what is otherwise built on first request."""
        await prepare_on_demand(self._app)

    async def _add(self, spec: PartSpec) -> Part:
        part = await self._running.build(spec)
        await self._start(part)
        return part
