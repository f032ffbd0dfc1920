"""`session_ports.Ports` of a machine at E2B, through the proxy in front of it."""

import asyncio
import ssl
from collections.abc import Sequence
from urllib.parse import urlsplit

from sandyard.runtime.e2b.errors import E2bUnavailableError
from sandyard.runtime.errors import PortClosedError
from sandyard.runtime.remote.connection import Channel, reading_answer
from sandyard.runtime.sessions.ports import PortConnection

_CONNECT_SEC = 10


class E2bPorts:
    """E2B's proxy accepts HTTP and WebSocket, for a host name made of the port and the machine."""

    def __init__(self, channel: Channel, *, sandbox_url: str | None) -> None:
        """If set, `sandbox_url` is connected to instead of that host."""
        self._channel = channel
        self._sandbox_url = sandbox_url

    async def listening(self) -> Sequence[int]:
        answer = await self._channel.ask("listening")
        with reading_answer():
            return sorted({int(port) for port in answer})

    async def connect(self, port: int) -> PortConnection:
        if port not in await self.listening():
            raise PortClosedError
        host = self._channel.sandbox.get_host(port)
        try:
            async with asyncio.timeout(_CONNECT_SEC):
                reader, writer = await self._open(host)
        except (OSError, TimeoutError) as error:
            raise E2bUnavailableError(reason=f"{host}: {error}") from error
        return PortConnection(reader, writer, host)

    async def _open(self, host: str) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        url = urlsplit(self._sandbox_url or f"https://{host}")
        if url.scheme == "http":
            return await asyncio.open_connection(url.hostname, url.port or 80)
        context = await asyncio.to_thread(ssl.create_default_context)
        name = host.partition(":")[0]
        return await asyncio.open_connection(
            url.hostname, url.port or 443, ssl=context, server_hostname=name
        )
