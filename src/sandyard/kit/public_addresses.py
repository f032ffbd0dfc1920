"""Which addresses may be connected to: public ones, and explicitly allowed networks."""

import ipaddress
import socket
from collections.abc import Callable, Sequence
from typing import Any

Address = ipaddress.IPv4Address | ipaddress.IPv6Address
Network = ipaddress.IPv4Network | ipaddress.IPv6Network
_NAT64 = ipaddress.IPv6Network("64:ff9b::/96")
_GLOBAL_UNICAST = ipaddress.IPv6Network("2000::/3")
"""All global addresses allocated so far. Others that Python considers global are not internet
hosts: IPv4-compatible, site-local (fec0::/10), an operator's own NAT64 (64:ff9b:1::/48)."""
_DOCUMENTATION = ipaddress.IPv6Network("3fff::/20")
"""RFC 9637; not yet in Python's own list."""
_ANY_PORT = 9


def networks_of(texts: Sequence[str]) -> list[Network]:
    return [ipaddress.ip_network(text.strip(), strict=False) for text in texts]


def may_connect(text: str, *, allowed: Sequence[Network] = ()) -> bool:
    """Whether the address is public and not this machine's own, or is explicitly allowed."""
    if is_allowed(text, allowed):
        return True
    return is_public(text, allowed=allowed) and not is_own(text)


def checked_socket(
    allowed: Sequence[Network], refused: type[Exception]
) -> Callable[[Any], socket.socket]:
    """For aiohttp's connections: the address that is actually connected to is checked, whatever
    name led to it."""

    def checked(address: Any) -> socket.socket:
        family, kind, protocol, _, where = address
        if not may_connect(str(where[0]).split("%")[0], allowed=allowed):
            raise refused
        return socket.socket(family, kind, protocol)

    return checked


def is_public(text: str, *, allowed: Sequence[Network] = ()) -> bool:
    """Whether the address is publicly reachable, or explicitly allowed."""
    if is_allowed(text, allowed):
        return True
    address: Address = ipaddress.ip_address(text)
    if isinstance(address, ipaddress.IPv6Address):
        inner = _inner(address)
        if inner is not None:
            return is_public(str(inner), allowed=allowed)
        if address not in _GLOBAL_UNICAST or address in _DOCUMENTATION:
            return False
    return address.is_global and not address.is_multicast


def is_allowed(text: str, allowed: Sequence[Network]) -> bool:
    address = ipaddress.ip_address(text)
    return any(address in network for network in allowed if network.version == address.version)


def is_own(text: str) -> bool:
    """Whether this machine itself has the address: packets to it have it as their source. Sends
    nothing."""
    family = socket.AF_INET6 if ":" in text else socket.AF_INET
    with socket.socket(family, socket.SOCK_DGRAM) as probe:
        try:
            probe.connect((text, _ANY_PORT))
        except OSError:
            return False  # no route to it
        return bool(probe.getsockname()[0] == text)


def _inner(address: ipaddress.IPv6Address) -> ipaddress.IPv4Address | None:
    """The IPv4 address embedded in an IPv6 address."""
    if address.ipv4_mapped is not None:
        return address.ipv4_mapped
    if address.sixtofour is not None:
        return address.sixtofour
    if address.teredo is not None:
        return address.teredo[1]
    if address in _NAT64:
        return ipaddress.IPv4Address(int(address) & 0xFFFFFFFF)
    return None
