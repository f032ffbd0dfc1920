"""The first bytes of a connection: which host they say it is for."""

import asyncio
import re
import ssl
from dataclasses import dataclass
from typing import Literal

from sandyard.runtime.egress.http_heads import MOST_HEAD_BYTES, names_host

_MORE_SEC = 2.0
_READ_BYTES = 64 * 1024
_HANDSHAKE = 0x16
_HTTP = re.compile(rb".*HTTP/\d", re.IGNORECASE)
_MAY_BE_HTTP = re.compile(rb"([A-Z]{1,20}( [!-~]*( [HTP/\d.]*\r?)?)?)?")
_TEXT = re.compile(rb"[\t\r -~]*")


@dataclass(frozen=True, slots=True)
class Opening:
    data: bytes
    protocol: Literal["tls", "http", "other"] = "other"
    server_name: str | None = None
    """The one that TLS asks for."""
    is_complete: bool = True
    """Whether all of it came in time that says which host it is for."""

    def is_for(self, host: str, *, is_strict: bool) -> bool:
        """Whether all that follows may be sent to this host unread. If `is_strict`, an opening must
        show that, as far as its protocol can; HTTP may name another host in its next request."""
        if self.protocol == "tls":
            name = self.server_name and self.server_name.lower().removesuffix(".")
            return self.is_complete and (name == host or (name is None and not is_strict))
        if self.protocol == "http":
            return self.is_complete and not is_strict and names_host(self.data.lstrip(), host)
        return self.is_complete or not is_strict


async def read_opening(reader: asyncio.StreamReader, *, is_strict: bool) -> Opening:
    """Wait for the first byte, and for what else belongs to the opening. If `is_strict`, the whole
    first line of any text does; otherwise only that of what begins like a request of HTTP."""
    data = await reader.read(_READ_BYTES)
    found = _parse(data, is_strict=is_strict)
    try:
        async with asyncio.timeout(_MORE_SEC):
            while not found.is_complete and len(data) <= MOST_HEAD_BYTES:
                more = await reader.read(_READ_BYTES)
                if not more:
                    break
                data += more
                found = _parse(data, is_strict=is_strict)
    except TimeoutError:
        pass
    return found


def _parse(data: bytes, *, is_strict: bool) -> Opening:
    if data[:1] == bytes([_HANDSHAKE]):
        name, is_complete = _server_name(data)
        return Opening(data, "tls", name, is_complete=is_complete)
    text = data.lstrip(b"\r\n")
    line, newline, _ = text.partition(b"\n")
    if newline:
        is_http = _HTTP.match(line) is not None
        is_complete = not is_http or b"\r\n\r\n" in data
        return Opening(data, "http" if is_http else "other", is_complete=is_complete)
    may_be_http = (_TEXT if is_strict else _MAY_BE_HTTP).fullmatch(line)
    return Opening(data, is_complete=not data or may_be_http is None)


def _server_name(data: bytes) -> tuple[str | None, bool]:
    """The name in a ClientHello, read by OpenSSL as servers do; and whether all of it is there."""
    incoming = ssl.MemoryBIO()
    incoming.write(data)
    hello = _HELLOS.wrap_bio(incoming, ssl.MemoryBIO(), server_side=True)
    try:
        hello.do_handshake()
    except ssl.SSLWantReadError:
        return None, False
    except ssl.SSLError:
        return getattr(hello, "asked_name", None), True
    return None, True


def _remember_name(hello: ssl.SSLObject, name: str | None, _context: ssl.SSLContext) -> int:
    hello.asked_name = name  # type: ignore[attr-defined]
    return ssl.AlertDescription.ALERT_DESCRIPTION_ACCESS_DENIED


_HELLOS = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
_HELLOS.minimum_version = ssl.TLSVersion.MINIMUM_SUPPORTED
_HELLOS.sni_callback = _remember_name
