"""Egress and ingress rules of a sandbox, in addition to its network."""

import ssl
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import cache
from typing import Any

from sandyard.platform.sandboxes.model import Sandbox
from sandyard.runtime.errors import PortClosedError
from sandyard.runtime.network_model import EgressRules
from sandyard.runtime.sessions.ports import PortConnection, Ports

_PORT = "${PORT}"


@dataclass(frozen=True, slots=True)
class TrafficRules:
    allow_out: Sequence[str] = ()
    deny_out: Sequence[str] = ()
    dns_servers: Sequence[str] | None = None
    """Reachable too, if a name is allowed."""
    mask_request_host: str | None = None
    """The Host header for its programs, with `${PORT}` for the port."""
    https_ports: Sequence[int] = ()
    """Ports on which its programs speak TLS."""
    tells_of_token: bool = False
    """Whether a request to a port without its token is told that one is needed."""

    @classmethod
    def of(cls, sandbox: Sandbox) -> "TrafficRules":
        return cls(**(sandbox.traffic_rules or {}))

    @property
    def egress(self) -> EgressRules:
        return EgressRules((*self.allow_out, *(self.dns_servers or ())), tuple(self.deny_out))

    def recorded(self) -> Mapping[str, Any] | None:
        """As stored with the sandbox; None if there are none."""
        rules = asdict(self)
        is_plain = self.dns_servers is None and not any(rules.values())
        return None if is_plain else rules


@dataclass(frozen=True, slots=True)
class RuledPorts:
    ports: Ports
    rules: TrafficRules

    async def listening(self) -> Sequence[int]:
        return await self.ports.listening()

    async def connect(self, port: int) -> PortConnection:
        connection = await self.ports.connect(port)
        if port in self.rules.https_ports:
            await _encrypt(connection)
        mask = self.rules.mask_request_host
        return (
            connection if mask is None else replace(connection, host=mask.replace(_PORT, str(port)))
        )


async def _encrypt(connection: PortConnection) -> None:
    """Accepts any certificate: the path to the program is the machine's own."""
    try:
        await connection.writer.start_tls(_any_certificate())
    except OSError as error:
        connection.writer.transport.abort()
        raise PortClosedError from error


@cache
def _any_certificate() -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    return context
