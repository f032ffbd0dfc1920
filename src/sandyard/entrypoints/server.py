"""Listening sockets: an ASGI application on Granian, inside the running event loop."""

import asyncio
import errno
import socket
from contextlib import suppress
from typing import Any

from granian.constants import HTTPModes, Interfaces
from granian.http import HTTP1Settings
from granian.server.embed import Server

from sandyard.kit.errors import SandyardError

_STOP_SEC = 5


class PortInUseError(SandyardError):
    """The port is taken. Stop what listens there, or choose another --port."""

    code = "PORT_IN_USE"


class Listener:
    """One application on one port, from `start` to `stop`."""

    def __init__(self, app: Any, *, host: str, port: int) -> None:
        self.host = host
        self.port = port
        self._server = Server(
            app,
            address=host,
            port=port,
            interface=Interfaces.ASGINL,
            http=HTTPModes.http1,
            http1_settings=HTTP1Settings(keep_alive=True),
            websockets=False,
            backlog=2048,
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


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])
