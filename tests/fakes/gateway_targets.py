"""Sandboxes of the gateway's tests: real servers on loopback behind the runtime's port."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Any

from sandyard.runtime.errors import NotRunningError, PortClosedError
from sandyard.runtime.sessions.ports import PortConnection

Handler = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]


@dataclass(frozen=True, slots=True)
class Box:
    """A sandbox or preview, as the gateway sees it."""

    account_id: str
    is_public: bool = False
    public_ports: tuple[int, ...] = ()
    reports_missing_token: bool = False
    is_running: bool = True
    wakes: bool = False
    not_running_reason: str = "This sandbox is stopped."


@dataclass
class LoopbackPorts:
    """`Ports` of one machine: each port inside is one of this host's loopback."""

    inside: dict[int, int] = field(default_factory=dict)
    host: str | None = None

    async def listening(self) -> Sequence[int]:
        return sorted(self.inside)

    async def connect(self, port: int) -> PortConnection:
        try:
            reader, writer = await asyncio.open_connection("127.0.0.1", self.inside[port])
        except (KeyError, OSError) as error:
            raise PortClosedError from error
        return PortConnection(reader, writer, self.host)


@dataclass
class Boxes:
    """`Targets`, with the ports of each."""

    boxes: dict[str, Box] = field(default_factory=dict)
    machines: dict[str, LoopbackPorts] = field(default_factory=dict)
    woken: int = 0

    def add(self, target_id: str, account_id: str, *, port: int, at: int, **changes: Any) -> None:
        """With a program that listens on `port` inside, which is `at` on loopback."""
        self.boxes[target_id] = Box(account_id, **changes)
        self.machines[target_id] = LoopbackPorts({port: at})

    async def find(self, target_id: str) -> Box | None:
        return self.boxes.get(target_id)

    async def ports(self, target_id: str) -> LoopbackPorts:
        if not self.boxes[target_id].is_running:
            raise NotRunningError
        return self.machines[target_id]

    async def wake(self, target_id: str) -> Box:
        self.woken += 1
        self.boxes[target_id] = replace(self.boxes[target_id], is_running=True)
        return self.boxes[target_id]


@dataclass(frozen=True, slots=True)
class Owner:
    is_active: bool = True
    token_version: int = 0


@dataclass
class OwnersKey:
    account: Owner
    is_valid: bool = True

    def holds_at(self, _now: datetime) -> bool:
        return self.is_valid


@dataclass
class Owners:
    """`CredentialLookup`."""

    owners: dict[str, Owner] = field(default_factory=dict)
    keys: dict[str, OwnersKey] = field(default_factory=dict)

    async def find_account(self, account_id: str) -> Owner | None:
        return self.owners.get(account_id)

    async def find_key_by_id(self, key_id: str) -> OwnersKey | None:
        return self.keys.get(key_id)


@asynccontextmanager
async def program(handle: Handler) -> AsyncIterator[int]:
    """A server that speaks as `handle` does; its port."""
    running: set[asyncio.Task[None]] = set()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        running.add(task)
        try:
            await handle(reader, writer)
        except (ConnectionError, asyncio.IncompleteReadError):
            pass
        finally:
            running.discard(task)
            writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    try:
        yield server.sockets[0].getsockname()[1]
    finally:
        server.close()
        for task in running:
            task.cancel()
        await asyncio.gather(*running, return_exceptions=True)
