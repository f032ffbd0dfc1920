"""An address of its own for each name that a machine looks up: connections to it are for the name.

So connections to two names are told apart even if both have the same public address, and what a
name resolves to is decided when it is connected to.
"""

import secrets
import socket
import struct
from collections import OrderedDict

_FIRST, _ADDRESSES = 198 << 24 | 18 << 16, 1 << 17
"""198.18.0.0/15 is reserved for tests of networks (RFC 2544): no host of the internet is there."""
_RESERVED = 256
"""The first addresses are the machine's own."""
_MOST_NAMES = 8192


class NameAddresses:
    """The names used last. An address is given to another name only after all others were."""

    def __init__(self) -> None:
        self._names: OrderedDict[str, str] = OrderedDict()
        """By address, the one used last at the end."""
        self._addresses: dict[str, str] = {}
        self._next = secrets.randbelow(_ADDRESSES)

    def address_of(self, name: str) -> str:
        if (known := self._addresses.get(name)) is not None:
            self._names.move_to_end(known)
            return known
        if len(self._names) == _MOST_NAMES:
            _, oldest = self._names.popitem(last=False)
            del self._addresses[oldest]
        address = self._addresses[name] = self._new()
        self._names[address] = name
        return address

    def name_of(self, address: str) -> str | None:
        if (name := self._names.get(address)) is not None:
            self._names.move_to_end(address)
        return name

    def _new(self) -> str:
        while True:
            self._next = (self._next + 1) % _ADDRESSES
            address = socket.inet_ntoa(struct.pack(">I", _FIRST + self._next))
            if self._next >= _RESERVED and address not in self._names:
                return address
