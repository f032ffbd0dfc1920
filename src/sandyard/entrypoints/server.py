"""Listening sockets: an ASGI application on Granian, inside the running event loop."""

import asyncio
import errno
import ipaddress
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from typing import Any

from granian.constants import HTTPModes, Interfaces
from granian.http import HTTP1Settings
from granian.server.embed import Server

from sandyard.kit.errors import SandyardError

_STOP_SEC = 5
_BACKLOG = 4096
_UNLIMITED = 1_000_000
"""Granian counts idle connections too, and once there are so many accepts no other until one ends.
Limits that spare the others are in `connections`."""


class PortInUseError(SandyardError):
    """The port is taken. Stop what listens there, or choose another --port."""

    code = "PORT_IN_USE"


class Listener:
    """One application on one port, from `start` to `stop`."""

    def __init__(self, app: Any, *, host: str, port: int, keep_alive_sec: float = 75) -> None:
        self.host = host
        self.port = port
        self._server = Server(
            app,
            address=host,
            port=port,
            interface=Interfaces.ASGINL,
            http=HTTPModes.http1,
            # The time for headers is also the time that an idle connection has.
            http1_settings=HTTP1Settings(header_read_timeout=int(keep_alive_sec * 1000)),
            websockets=False,
            backlog=_BACKLOG,
            backpressure=_UNLIMITED,
            log_enabled=False,
        )
        self._task: asyncio.Task[None] | None = None

    async def start(self) -> None:
        """Listen; returns when connections are accepted."""
        self._task = asyncio.create_task(self._server.serve())
        host = {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(self.host, self.host)  # noqa: S104
        while not self._task.done():
            with suppress(OSError):
                _, writer = await asyncio.open_connection(host, self.port)
                writer.close()
                return
            await asyncio.sleep(0.01)
        await self._task

    async def stop(self) -> None:
        if self._task is None:
            return
        self._server.stop()  # type: ignore[no-untyped-call]
        await asyncio.wait([self._task], timeout=_STOP_SEC)


@asynccontextmanager
async def listening(app: Any) -> AsyncIterator[str]:
    """Serve the application on a free port of this machine; its URL."""
    listener = Listener(app, host="127.0.0.1", port=free_port())
    await listener.start()
    try:
        yield f"http://127.0.0.1:{listener.port}"
    finally:
        await listener.stop()


def require_free_port(host: str, port: int) -> None:
    """Raise PortInUseError if somebody listens there.

    Granian shares ports, so a second server would start without a word and take half the calls.
    """
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    with socket.socket(family, socket.SOCK_STREAM) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((host, port))
        except OSError as error:
            if error.errno == errno.EADDRINUSE:
                raise PortInUseError(
                    f"Port {port} on {host} is taken. Stop what listens there, or choose another "
                    "--port."
                ) from error
            raise PortInUseError(f"Cannot listen on {host}:{port}: {error.strerror}.") from error


def is_loopback(host: str) -> bool:
    """Whether only this machine reaches what listens there."""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])
