"""`sessions.ports.Ports` of a machine elsewhere, through the proxy in front of it."""

import asyncio
import ssl
from collections.abc import Callable, Sequence
from urllib.parse import urlsplit

from sandyard.runtime.errors import PortClosedError
from sandyard.runtime.remote.connection import Connection
from sandyard.runtime.remote.errors import CallError
from sandyard.runtime.sessions.ports import PortConnection

_CONNECT_SEC = 10


class RemotePorts:
    """The proxy accepts HTTP and WebSocket, for a host name made of the port and the machine."""

    def __init__(
        self, connection: Connection, host_of: Callable[[int], str], *, proxy_url: str | None
    ) -> None:
        """If set, `proxy_url` is connected to instead of that host."""
        self._connection = connection
        self._host_of = host_of
        self._proxy_url = proxy_url

    async def listening(self) -> Sequence[int]:
        ports = await self._connection.ask("listening")
        with self._connection.parsing():
            return sorted({int(port) for port in ports})

    async def connect(self, port: int) -> PortConnection:
        if port not in await self.listening():
            raise PortClosedError
        host = self._host_of(port)
        try:
            async with asyncio.timeout(_CONNECT_SEC):
                reader, writer = await self._open(host)
        except (OSError, TimeoutError) as error:
            failure = CallError("unreachable", f"{host}: {error}")
            raise self._connection.translate(failure) from error
        return PortConnection(reader, writer, host)

    async def _open(self, host: str) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        url = urlsplit(self._proxy_url or f"https://{host}")
        if url.scheme == "http":
            return await asyncio.open_connection(url.hostname, url.port or 80)
        context = await asyncio.to_thread(ssl.create_default_context)
        name = host.partition(":")[0]
        return await asyncio.open_connection(
            url.hostname, url.port or 443, ssl=context, server_hostname=name
        )
