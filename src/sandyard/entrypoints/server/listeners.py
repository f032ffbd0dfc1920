"""Listening sockets: an ASGI application on Granian, inside the running event loop."""

import asyncio
import errno
import ipaddress
import socket
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from granian.constants import HTTPModes, Interfaces, SSLProtocols
from granian.http import HTTP1Settings
from granian.server.embed import Server
from starlette.types import Message, Receive, Scope, Send

from sandyard.kit.errors import SandyardError
from sandyard.kit.free_ports import free_port
from sandyard.kit.http.security import RawHeaders
from sandyard.kit.wired import wired

_STOP_SEC = 5
_TAKE_OVER_SEC, _CLOSE_SEC = 1.0, 4.0
_BACKLOG = 4096
_IO_THREADS = 2
"""With one, a claim's response waits while large ones are written to many others."""
_UNLIMITED = 1_000_000
"""Granian counts idle connections too, and at the limit accepts no others until one ends. Limits
that do not block others are in `connections`."""


class PortInUseError(SandyardError):
    """The port is taken. Stop what listens there, or choose another --port."""


class TlsFilesError(SandyardError):
    """The certificate and its key can't be used. Correct --tls-cert or --tls-key."""


@dataclass(frozen=True, slots=True)
class Tls:
    """A certificate chain and its key: PEM files."""

    certificate: Path
    key: Path
    hsts_sec: int = 0
    """How long browsers must use only HTTPS for this host, on any port."""

    def require_usable(self) -> None:
        """Raise TlsFilesError, which names the file, unless the two fit together."""
        try:
            context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            context.load_cert_chain(self.certificate, self.key, password=str)
        except OSError as error:  # also those of `ssl`
            raise TlsFilesError(self._mistake(error)) from error

    def _mistake(self, error: OSError) -> str:
        if not isinstance(error, ssl.SSLError):
            return f"{error.filename or self.certificate} can't be read: {error.strerror}."
        if error.reason == "KEY_VALUES_MISMATCH":
            return f"--tls-key {self.key} is not the key of --tls-cert {self.certificate}."
        if b"BEGIN CERTIFICATE" not in self.certificate.read_bytes():
            return f"--tls-cert {self.certificate} is not a certificate in PEM."
        return f"--tls-key {self.key} is not a key in PEM without a password."

    @property
    def headers(self) -> RawHeaders:
        """Additional headers of each response."""
        hsts = (b"strict-transport-security", b"max-age=%d" % self.hsts_sec)
        return (hsts,) if self.hsts_sec else ()


class ConnectionCloser:
    """An application that closes its connections with the next response once `is_closing`: a client
    that is told so does not send another request on a closing connection."""

    def __init__(self, app: Any, headers: RawHeaders = ()) -> None:
        self._app = app
        self._headers = headers
        self.is_closing = False

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        closing = ((b"connection", b"close"),) if self.is_closing else ()
        headers = (*self._headers, *closing)
        await self._app(scope, receive, _with_headers(send, headers) if headers else send)


def _with_headers(send: Send, headers: RawHeaders) -> Send:
    async def send_with_headers(message: Message) -> None:
        if message["type"] == "http.response.start":
            message["headers"] = [*message["headers"], *headers]
        await send(message)

    return send_with_headers


@wired
class Listener:
    """One application on one port, from `start` to `stop`."""

    app: Any
    host: str
    port: int
    keep_alive_sec: float = 75
    tls: Tls | None = None

    def __post_init__(self) -> None:
        self._closer, self._server = self._new_server()
        self._tasks: list[asyncio.Task[None]] = []

    async def start(self) -> None:
        task = self._serve()
        host = {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(self.host, self.host)  # noqa: S104
        while not task.done():
            with suppress(OSError):
                _, writer = await asyncio.open_connection(host, self.port)
                writer.close()
                return
            await asyncio.sleep(0.01)
        await task

    async def reload_certificate(self) -> None:
        """New connections get the certificate that is in the files now; open ones close with their
        next response. Raises TlsFilesError, and changes nothing, if it can't be used."""
        closer, server = self._closer, self._server
        self._closer, self._server = self._new_server()
        self._serve()
        await asyncio.sleep(_TAKE_OVER_SEC)  # shared port: readiness can't be detected
        closer.is_closing = True
        await asyncio.sleep(_CLOSE_SEC)
        server.stop()  # type: ignore[no-untyped-call]
        await asyncio.wait(self._tasks[:-1], timeout=_STOP_SEC)
        self._tasks = [task for task in self._tasks if not task.done()]

    async def stop(self) -> None:
        if not self._tasks:
            return
        self._server.stop()  # type: ignore[no-untyped-call]
        await asyncio.wait(self._tasks, timeout=_STOP_SEC)

    def _serve(self) -> asyncio.Task[None]:
        task = asyncio.create_task(self._server.serve())
        self._tasks.append(task)
        return task

    def _new_server(self) -> tuple[ConnectionCloser, Server]:
        tls = self.tls
        if tls is not None:
            tls.require_usable()
        closer = ConnectionCloser(self.app, () if tls is None else tls.headers)
        server = Server(
            self.app if tls is None else closer,
            address=self.host,
            port=self.port,
            interface=Interfaces.ASGINL,
            http=HTTPModes.http1,
            # The header timeout is also the idle timeout.
            http1_settings=HTTP1Settings(header_read_timeout=int(self.keep_alive_sec * 1000)),
            websockets=True,
            backlog=_BACKLOG,
            backpressure=_UNLIMITED,
            runtime_threads=_IO_THREADS,
            log_enabled=False,
            ssl_cert=None if tls is None else tls.certificate,
            ssl_key=None if tls is None else tls.key,
            ssl_protocol_min=SSLProtocols.tls12,
        )
        return closer, server


@asynccontextmanager
async def listening(app: Any) -> AsyncIterator[str]:
    """Serve the application on a free local port; yields its URL."""
    listener = Listener(app, host="127.0.0.1", port=free_port())
    await listener.start()
    try:
        yield f"http://127.0.0.1:{listener.port}"
    finally:
        await listener.stop()


def require_free_port(host: str, port: int, *, option: str = "--port") -> None:
    """Raise PortInUseError, which names the option, if another process listens there.

    Granian shares ports, so a second server would start silently and take half the calls.
    """
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    with socket.socket(family, socket.SOCK_STREAM) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((host, port))
        except OSError as error:
            if error.errno == errno.EADDRINUSE:
                raise PortInUseError(
                    f"Port {port} on {host} is in use. Stop the process that listens there, or "
                    f"choose another {option}."
                ) from error
            raise PortInUseError(
                f"{option}: can't listen on {host}:{port}: {error.strerror}."
            ) from error


def is_loopback(host: str) -> bool:
    """Whether only this machine can reach it."""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"
