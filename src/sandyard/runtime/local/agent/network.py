"""The network inside a machine: an interface, routes and four rules, in a namespace that leads
nowhere.

Every address is local to the namespace. So all TCP connections, whatever their address and port,
arrive at one listener, and all DNS queries at one socket; the egress proxy serves both from
outside. Everything else is refused at once. It needs nothing but the kernel: no program, and no
right outside the namespace.

The interface `eth0` has its other end, `uplink`, in the same namespace. A gVisor machine takes over
the address and the routes of `eth0`; its packets then arrive through `uplink`, to the same rules.
"""

import socket
import struct
from contextlib import suppress
from dataclasses import dataclass

from sandyard.runtime.local.host.netlink import (
    attribute,
    attributes_in,
    change,
    make_changes,
    number,
    request,
)

LISTENER_PORT = 3129
_OWN = socket.inet_aton("198.18.0.2")
_ROUTER = socket.inet_aton("198.18.0.1")
_INTERFACE, _UPLINK = "eth0", "uplink"
_NETFILTER = 12
_BACKLOG = 128
_TRANSPARENT, _SHOW_DESTINATION = 19, 8
"""IP_TRANSPARENT: may accept connections to any address. IP_PKTINFO."""

_APPEND = 0x800
_LINK, _ADDRESS, _ROUTE = 16, 20, 24
_IFLA_NAME, _IFLA_KIND, _IFLA_OPTIONS = 3, 18, 26
_UP = 1
_NO_IPV6 = attributes_in(_IFLA_OPTIONS, attributes_in(10, attribute(8, b"\1")))
"""No IPv6 addresses on it."""
_TO, _OUT, _BY, _PRIORITY, _FROM = 1, 4, 5, 6, 7
_MAIN, _STATIC, _ON_LINK = 254, 4, 4
_UNICAST, _LOCAL = 1, 2
_EVERYWHERE, _NEIGHBOUR, _HOST = 0, 253, 254

_NFTABLES = 10
_TABLE, _CHAIN, _RULE = (_NFTABLES << 8 | each for each in (0, 3, 6))
_BATCH_BEGIN, _BATCH_END = 16, 17
_BEFORE_ROUTING, _MANGLE = 0, -150
_NETWORK_HEADER, _TRANSPORT_HEADER = 1, 2
_PROTOCOL_AT, _DESTINATION_AT, _PORT_AT = 9, 16, 2
_VERDICT, _REGISTER, _OTHER_REGISTER = 0, 1, 2
_ACCEPT = 1
_DNS, _LISTENER = 53, struct.pack(">H", LISTENER_PORT)
_PORT_UNREACHABLE = 3
"""ICMP's code; a program gets "Connection refused"."""


@dataclass(frozen=True, slots=True)
class OpenedNetwork:
    sockets: tuple[socket.socket, ...] = ()
    """The listener for all TCP connections, and the socket for all DNS queries."""
    missing: str | None = None
    """Why there are none."""


def open_network() -> OpenedNetwork:
    """Of the namespace that this process is in and administers. It can be opened once."""
    try:
        _add_interface()
        _add_routes()
        return OpenedNetwork(_sockets())
    except OSError as error:
        return OpenedNetwork(missing=error.strerror or str(error))


def _sockets() -> tuple[socket.socket, socket.socket]:
    listener = socket.socket()
    queries = socket.socket(type=socket.SOCK_DGRAM)
    for each in (listener, queries):
        each.setsockopt(socket.IPPROTO_IP, _TRANSPARENT, 1)
    listener.bind(("0.0.0.0", LISTENER_PORT))  # noqa: S104 - all addresses of this namespace
    listener.listen(_BACKLOG)
    queries.setsockopt(socket.IPPROTO_IP, _SHOW_DESTINATION, 1)
    queries.bind(("0.0.0.0", _DNS))  # noqa: S104 - as above
    _add_rules()
    # Then `ping` shows that, instead of which right it lacks.
    with suppress(OSError), open("/proc/sys/net/ipv4/ping_group_range", "w") as groups:
        groups.write("1000 65535")
    return listener, queries


def _add_interface() -> None:
    peer = attributes_in(1, _link(0), attribute(_IFLA_NAME, _text(_UPLINK)))
    kind = attributes_in(_IFLA_KIND, attribute(1, b"veth"), attributes_in(2, peer))
    name = attribute(_IFLA_NAME, _text(_INTERFACE))
    _route_change(_LINK, _link(0), name, kind)
    for each in (_INTERFACE, _UPLINK):
        _route_change(_LINK, _link(socket.if_nametoindex(each)), _NO_IPV6)
    for each in ("lo", _INTERFACE, _UPLINK):
        _route_change(_LINK, _link(socket.if_nametoindex(each), _UP))
    head = struct.pack("=BBBBi", socket.AF_INET, 32, 0, 0, socket.if_nametoindex(_INTERFACE))
    _route_change(_ADDRESS, head, attribute(1, _OWN), attribute(2, _OWN))


def _add_routes() -> None:
    out = {
        name: attribute(_OUT, number(socket.if_nametoindex(name)))
        for name in ("lo", _INTERFACE, _UPLINK)
    }
    own = attribute(_FROM, _OWN)
    # Programs see it and gVisor takes it; this kernel prefers those below.
    router, last = attribute(_BY, _ROUTER), attribute(_PRIORITY, number(100))
    _add_route(_UNICAST, _EVERYWHERE, out[_INTERFACE], router, last, own)
    _add_route(_LOCAL, _HOST, out["lo"], own)
    # The one above goes when gVisor takes the address.
    _add_route(_LOCAL, _HOST, out["lo"], attribute(_PRIORITY, number(50)))
    as_router = attribute(_FROM, _ROUTER)
    _add_route(_UNICAST, _NEIGHBOUR, attribute(_TO, _OWN), out[_UPLINK], as_router, bits=32)


def _add_route(kind: int, scope: int, *attributes: bytes, bits: int = 0) -> None:
    flags = _ON_LINK if scope == _EVERYWHERE else 0
    head = (socket.AF_INET, bits, 0, 0, _MAIN, _STATIC, scope, kind, flags)
    _route_change(_ROUTE, struct.pack("=BBBBBBBBI", *head), *attributes)


def _link(index: int, flags: int = 0) -> bytes:
    return struct.pack("=BxHiII", socket.AF_UNSPEC, 0, index, flags, flags)


def _route_change(kind: int, *content: bytes) -> None:
    make_changes(socket.NETLINK_ROUTE, change(kind, *content))


def _add_rules() -> None:
    """For packets that arrive: those to the machine itself are accepted; connections go to the
    listener, queries to their socket; what is left is rejected."""
    accept = _expression("immediate", _value(1, _VERDICT), _data(2, _verdict(_ACCEPT)))
    to_listener = (
        _expression("immediate", _value(1, _OTHER_REGISTER), _data(2, attribute(1, _LISTENER))),
        _expression("tproxy", _value(1, socket.AF_INET), _value(3, _OTHER_REGISTER)),
    )
    reject = _expression("reject", _value(1, 0), attribute(2, bytes([_PORT_UNREACHABLE])))
    tcp, udp = bytes([socket.IPPROTO_TCP]), bytes([socket.IPPROTO_UDP])
    rules = (
        (*_is(_NETWORK_HEADER, _DESTINATION_AT, b"\x7f"), accept),
        (*_is(_NETWORK_HEADER, _DESTINATION_AT, _OWN), accept),
        (*_is(_NETWORK_HEADER, _PROTOCOL_AT, tcp), *to_listener, accept),
        (
            *_is(_NETWORK_HEADER, _PROTOCOL_AT, udp),
            *_is(_TRANSPORT_HEADER, _PORT_AT, struct.pack(">H", _DNS)),
            accept,
        ),
        (reject,),
    )
    table, chain = _text("sandyard"), _text("arriving")
    hook = attributes_in(4, _value(1, _BEFORE_ROUTING), attribute(2, struct.pack(">i", _MANGLE)))
    batch = struct.pack(">BBH", socket.AF_UNSPEC, 0, _NFTABLES)
    make_changes(
        _NETFILTER,
        request(_BATCH_BEGIN, batch),
        _rule_change(_TABLE, attribute(1, table)),
        _rule_change(
            _CHAIN, attribute(1, table), attribute(3, chain), hook, attribute(7, _text("filter"))
        ),
        *(
            _rule_change(_RULE, attribute(1, table), attribute(2, chain), attributes_in(4, *each))
            for each in rules
        ),
        request(_BATCH_END, batch),
    )


def _rule_change(kind: int, *content: bytes) -> bytes:
    return change(kind, struct.pack(">BBH", socket.AF_INET, 0, 0), *content, flags=_APPEND)


def _is(header: int, at: int, content: bytes) -> tuple[bytes, bytes]:
    """Whether the packet has this content there."""
    source = (_value(2, header), _value(3, at), _value(4, len(content)))
    return (
        _expression("payload", _value(1, _REGISTER), *source),
        _expression("cmp", _value(1, _REGISTER), _value(2, 0), _data(3, attribute(1, content))),
    )


def _expression(name: str, *content: bytes) -> bytes:
    return attributes_in(1, attribute(1, _text(name)), attributes_in(2, *content))


def _verdict(code: int) -> bytes:
    return attributes_in(2, _value(1, code))


def _data(kind: int, content: bytes) -> bytes:
    return attributes_in(kind, content)


def _value(kind: int, value: int) -> bytes:
    return attribute(kind, struct.pack(">I", value))


def _text(name: str) -> bytes:
    return name.encode() + b"\0"
