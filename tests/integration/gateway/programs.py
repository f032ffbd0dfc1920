"""Programs as they run in sandboxes: some speak HTTP as they should, some do not."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

import h11

from tests.fakes.gateway_targets import Handler, program
from tests.support.servers.gateway import BOX, OWNER, GatewayServer


@dataclass
class Seen:
    """What a program was sent."""

    method: str = ""
    target: str = ""
    headers: list[tuple[str, str]] = field(default_factory=list)
    names: list[str] = field(default_factory=list)
    """Of the headers, in their case."""
    body: bytes = b""
    arrived: asyncio.Event = field(default_factory=asyncio.Event)
    left: asyncio.Event = field(default_factory=asyncio.Event)
    """When the gateway has closed the connection."""

    def header(self, name: str) -> str | None:
        found = [value for key, value in self.headers if key == name]
        return ", ".join(found) if found else None


async def read_request(reader: asyncio.StreamReader, seen: Seen) -> None:
    """All of it, by a strict reader."""
    wire = h11.Connection(h11.SERVER)
    while not isinstance(event := wire.next_event(), h11.EndOfMessage):
        if event is h11.NEED_DATA:
            wire.receive_data(await reader.read(1 << 16))
        elif isinstance(event, h11.Request):
            seen.method, seen.target = event.method.decode(), event.target.decode()
            seen.headers = [(name.decode(), value.decode()) for name, value in event.headers]
            seen.names = [name.decode() for name, _ in event.headers.raw_items()]
        elif isinstance(event, h11.Data):
            seen.body += bytes(event.data)
        elif isinstance(event, h11.ConnectionClosed):
            raise ConnectionError
    seen.arrived.set()


def answering(answer: bytes, seen: Seen | None = None) -> Handler:
    """Reads the request, says this, and closes."""

    async def handle(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await read_request(reader, seen or Seen())
        writer.write(answer)
        await writer.drain()

    return handle


def page(text: str, *headers: str, status: str = "200 OK") -> bytes:
    lines = [f"HTTP/1.1 {status}", f"Content-Length: {len(text)}", *headers]
    return ("\r\n".join(lines) + "\r\n\r\n" + text).encode()


@asynccontextmanager
async def in_box(
    server: GatewayServer, handle: Handler, *, target_id: str = BOX, **changes: bool
) -> AsyncIterator[None]:
    """A public sandbox, unless it is said, whose program listens on 3000."""
    async with program(handle) as at:
        chosen = {"is_public": True} | changes
        server.boxes.add(target_id, OWNER, port=3000, at=at, **chosen)
        yield
