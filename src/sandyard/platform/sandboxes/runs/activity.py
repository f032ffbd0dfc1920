"""Records when sandboxes were last used, for idle stop."""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, field
from weakref import WeakSet

from sandyard.kit.clock import Clock, utc_time
from sandyard.platform.sandboxes.model import Sandbox
from sandyard.platform.sandboxes.ports import SandboxStore
from sandyard.platform.sandboxes.retried_later import retried_later
from sandyard.runtime.sessions.ports import PortConnection, Ports

NOTED_SEC = 15.0
"""How far the recorded time may lag behind."""


class Activity:
    """Records uses in the store, of each sandbox at most every `NOTED_SEC`, for as long as a
    connection is open."""

    def __init__(self, store: SandboxStore, *, clock: Clock) -> None:
        self._store = store
        self._clock = clock
        self._noted: dict[str, float] = {}
        self._open: dict[str, WeakSet[asyncio.StreamWriter]] = {}
        self._noting: asyncio.Task[None] | None = None

    async def note(self, sandbox: Sandbox) -> None:
        """Record that it is used now. An outage of the store does not prevent its use."""
        if sandbox.idle_stop_minutes is not None:
            await self._note(sandbox.sandbox_id)

    def watch(self, sandbox: Sandbox, ports: Ports) -> Ports:
        """The ports; every connection through them is a use until it is closed."""
        return ports if sandbox.idle_stop_minutes is None else _UsedPorts(self, sandbox, ports)

    def opened(self, sandbox_id: str, connection: PortConnection) -> None:
        self._open.setdefault(sandbox_id, WeakSet()).add(connection.writer)
        if self._noting is None or self._noting.done():
            self._noting = asyncio.create_task(self._keep_noting())

    async def close(self) -> None:
        if self._noting is not None:
            self._noting.cancel()
            await asyncio.gather(self._noting, return_exceptions=True)

    async def note_open(self) -> None:
        for sandbox_id, writers in list(self._open.items()):
            if any(not writer.is_closing() for writer in writers):
                await self._note(sandbox_id)
            else:
                del self._open[sandbox_id]

    async def _keep_noting(self) -> None:
        while self._open:
            await asyncio.sleep(NOTED_SEC)
            await self.note_open()

    async def _note(self, sandbox_id: str) -> None:
        now = self._clock.now()
        if now - self._noted.get(sandbox_id, 0) < NOTED_SEC:
            return
        self._noted = {each: at for each, at in self._noted.items() if now - at < NOTED_SEC}
        self._noted[sandbox_id] = now
        with retried_later("note-use", sandbox_id):
            await self._store.note_used(sandbox_id, at=utc_time(now))


@dataclass(frozen=True, slots=True)
class _UsedPorts:
    activity: Activity
    sandbox: Sandbox
    ports: Ports = field(repr=False)

    async def listening(self) -> Sequence[int]:
        return await self.ports.listening()

    async def connect(self, port: int) -> PortConnection:
        connection = await self.ports.connect(port)
        await self.activity.note(self.sandbox)
        self.activity.opened(self.sandbox.sandbox_id, connection)
        return connection
