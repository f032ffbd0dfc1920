"""The client address of a request, also behind proxies."""

from collections.abc import Sequence
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_address, ip_network

from starlette.requests import HTTPConnection

from sandyard.kit.http.security import values_of

Address = IPv4Address | IPv6Address
Network = IPv4Network | IPv6Network

_ONE_CUSTOMER = 64
"""The IPv6 prefix assigned to one customer, who controls all its addresses."""


class ClientAddress:
    """Determines a request's client address, given the trusted proxies."""

    def __init__(self, trusted_proxies: Sequence[Network] = ()) -> None:
        self._trusted = trusted_proxies

    def of(self, request: HTTPConnection) -> str:
        """The peer address. If the peer is a trusted proxy: the last address in `X-Forwarded-For`
        that is not one, because anyone may have written those to the left of it."""
        peer = request.client.host if request.client else ""
        nearest = read_address(peer)
        if nearest is None or not self._is_trusted(nearest):
            return peer if nearest is None else str(nearest)
        sent = b",".join(values_of(request.scope["headers"], b"x-forwarded-for"))
        for entry in reversed(sent.decode("latin-1").split(",")):
            address = read_address(entry)
            if address is None:  # entries to the left of a malformed one are no more reliable
                break
            nearest = address
            if not self._is_trusted(address):
                break
        return str(nearest)

    def _is_trusted(self, address: Address) -> bool:
        return any(address in network for network in self._trusted)


def read_address(text: str) -> Address | None:
    """The address in one entry of `X-Forwarded-For`, optionally with a port; None if it is not
    one."""
    host = text.strip()
    if host.startswith("["):
        host = host[1:].partition("]")[0]
    elif host.count(":") == 1:
        host = host.partition(":")[0]
    try:
        address = ip_address(host)
    except ValueError:
        return None
    mapped = address.ipv4_mapped if isinstance(address, IPv6Address) else None
    return mapped or address


def network_of(address: str) -> str:
    """The key for counting attempts: an IPv4 address, or an IPv6 customer's network."""
    parsed = read_address(address)
    if isinstance(parsed, IPv6Address):
        return str(ip_network((parsed, _ONE_CUSTOMER), strict=False))
    return address if parsed is None else str(parsed)
