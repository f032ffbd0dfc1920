"""The egress proxy, the only network a clone has: it connects to public hosts alone.

It resolves a name, checks the addresses and connects to one that it checked, in that order; so
neither a redirect nor a name that changes its address in between leads anywhere else.
"""

import asyncio
import ipaddress
import re
import socket
from collections.abc import Sequence

from sandyard.runtime.local.forward import Streams, forward

Address = ipaddress.IPv4Address | ipaddress.IPv6Address
Network = ipaddress.IPv4Network | ipaddress.IPv6Network
_CONNECT = re.compile(rb"CONNECT \[?([^\s\]/]{1,253})\]?:(\d{1,5}) HTTP/1\.[01]\r\n")
_CONNECT_SEC = 10
_NAT64 = ipaddress.IPv6Network("64:ff9b::/96")
_GLOBAL_UNICAST = ipaddress.IPv6Network("2000::/3")
"""All that is given out so far. What Python takes for global beyond it is no host of the internet:
IPv4-compatible, site-local (fec0::/10), an operator's own NAT64 (64:ff9b:1::/48)."""


class EgressProxy:
    """Answers CONNECT requests; remembers whether it refused an address."""

    def __init__(self, *, allowed_networks: Sequence[str] = ()) -> None:
        self._allowed = [ipaddress.ip_network(network) for network in allowed_networks]
        self.refused: str | None = None

    async def __call__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            async with asyncio.timeout(_CONNECT_SEC):
                request = await reader.readuntil(b"\r\n\r\n")
                found = _CONNECT.match(request)
                far = (
                    await self._connect(found[1].decode("ascii"), int(found[2])) if found else None
                )
        except (OSError, ValueError, TimeoutError, asyncio.IncompleteReadError):
            far = None
        except asyncio.LimitOverrunError:
            far = None
        if far is None:
            writer.write(b"HTTP/1.1 502 Bad Gateway\r\nContent-Length: 0\r\n\r\n")
            writer.close()
            return
        writer.write(b"HTTP/1.1 200 Connection established\r\n\r\n")
        await forward((reader, writer), far)

    async def _connect(self, host: str, port: int) -> Streams | None:
        loop = asyncio.get_running_loop()
        found = await loop.getaddrinfo(host, port, type=socket.SOCK_STREAM)
        addresses = [str(entry[4][0]).split("%")[0] for entry in found]
        if not all(is_public(address, allowed=self._allowed) for address in addresses):
            self.refused = host
            return None
        return await asyncio.open_connection(addresses[0], port)


def is_public(text: str, *, allowed: Sequence[Network] = ()) -> bool:
    """Whether the address is one that anybody on the internet may reach, or is allowed by name."""
    address: Address = ipaddress.ip_address(text)
    if any(address in network for network in allowed if network.version == address.version):
        return True
    if isinstance(address, ipaddress.IPv6Address):
        inner = _inner(address)
        if inner is not None:
            return is_public(str(inner), allowed=allowed)
        if address not in _GLOBAL_UNICAST:
            return False
    return address.is_global and not address.is_multicast


def _inner(address: ipaddress.IPv6Address) -> ipaddress.IPv4Address | None:
    """The IPv4 address that an IPv6 address stands for."""
    if address.ipv4_mapped is not None:
        return address.ipv4_mapped
    if address.sixtofour is not None:
        return address.sixtofour
    if address.teredo is not None:
        return address.teredo[1]
    if address in _NAT64:
        return ipaddress.IPv4Address(int(address) & 0xFFFFFFFF)
    return None
