"""A host by TLS, and an egress proxy that puts secrets into requests to it."""

import asyncio
import ssl
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from sandyard.kit.clock import SystemClock, utc_time
from sandyard.platform.variables.certificates import SandboxAuthorities
from sandyard.runtime.egress.http_heads import ProxyRequest
from sandyard.runtime.egress.proxy import EgressProxy
from sandyard.runtime.network_model import EgressPolicy
from sandyard.runtime.secrets_model import BoundSecret, MachineSecrets
from tests.support.servers.certificates import make_certificate

HOST = "api.bound.test"
PLACEHOLDER = "sandyard_secret_0123456789abcdefg"
VALUE = "sk-live/7+Q=never~inside"
KEYS = ("a key of SECRETS_KEY",)


@dataclass(slots=True)
class Received:
    """What a host got on its connections."""

    requests: list[bytes] = field(default_factory=list)
    writers: list[asyncio.StreamWriter] = field(default_factory=list)
    answer: bytes = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.writers.append(writer)
        try:
            while True:
                head = await reader.readuntil(b"\r\n\r\n")
                self.requests.append(head)
                for line in head.lower().split(b"\r\n"):
                    if line.startswith(b"content-length:"):
                        self.requests[-1] += await reader.readexactly(int(line.split(b":")[1]))
                if b"chunked" in head.lower():
                    self.requests[-1] += await reader.readuntil(b"0\r\n\r\n")
                writer.write(self.answer)
                await writer.drain()
        except (asyncio.IncompleteReadError, OSError):
            pass
        finally:
            writer.close()


def bound(port: int, **more: Any) -> BoundSecret:
    fields: dict[str, Any] = {"hosts": (f"{HOST}:{port}",), **more}
    return BoundSecret("env-1", "API_KEY", PLACEHOLDER, VALUE, **fields)


def secrets_of(folder: Path, *found: BoundSecret) -> MachineSecrets:
    """`folder` has the certificate of the hosts."""
    now = utc_time(SystemClock().now())
    issued = SandboxAuthorities(KEYS).issue("sbx-1", found, now=now)
    return replace(issued, trusted=(folder / "certificate.pem").read_text())


class Here:
    """All names are this machine's."""

    async def addresses(self, host: str, port: int) -> list[str]:  # noqa: ARG002
        return ["127.0.0.1"]


@dataclass(frozen=True, slots=True)
class InjectedHost:
    proxy: EgressProxy
    host_port: int
    port: int
    """Of the proxy, as if it were the host's."""
    received: Received
    trusting: ssl.SSLContext
    folder: Path

    @asynccontextmanager
    async def connected(
        self, name: str = HOST
    ) -> AsyncIterator[tuple[asyncio.StreamReader, asyncio.StreamWriter]]:
        streams = await asyncio.open_connection(
            "127.0.0.1", self.port, ssl=self.trusting, server_hostname=name
        )
        try:
            yield streams
        finally:
            streams[1].close()

    async def asked(self, *pieces: bytes) -> bytes:
        """All that is answered until the connection ends."""
        async with self.connected() as (reader, writer), asyncio.timeout(10):
            for piece in pieces:
                writer.write(piece)
                await writer.drain()
            found = b""
            try:
                while piece := await reader.read(65536):
                    found += piece
            except OSError:
                pass
            return found


@asynccontextmanager
async def injected_host(folder: Path, **binding: Any) -> AsyncIterator[InjectedHost]:
    certificate = make_certificate(folder, f"DNS:{HOST}", "DNS:other.test")
    received = Received()
    async with await asyncio.start_server(
        received.serve, "127.0.0.1", 0, ssl=certificate.serving()
    ) as server:
        host_port = server.sockets[0].getsockname()[1]
        policy = EgressPolicy("internet", (), ("127.0.0.0/8",))
        proxy = EgressProxy(policy, SystemClock(), resolver=Here())
        secrets = secrets_of(folder, bound(host_port, **binding))
        proxy.set_secrets(secrets)

        async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            await proxy(reader, writer, ProxyRequest(HOST, host_port))

        async with await asyncio.start_server(serve, "127.0.0.1", 0) as near:
            port = near.sockets[0].getsockname()[1]
            trusting = ssl.create_default_context(cadata=secrets.authority)
            yield InjectedHost(proxy, host_port, port, received, trusting, folder)


def reasons(proxy: EgressProxy) -> Sequence[str]:
    return [each.reason for each in proxy.counter.report("internet").refusals]
