"""Forwarding headers: hop-by-hop headers are removed."""

from dataclasses import dataclass

from sandyard.gateway.credentials import of_one_host, sets_cookie, without_credentials
from sandyard.gateway.errors import TunnelRefusedError
from sandyard.kit.http.security import RawHeaders, values_of

_HOP_BY_HOP = frozenset(
    {
        b"connection",
        b"keep-alive",
        b"proxy-authenticate",
        b"proxy-authorization",
        b"proxy-connection",
        b"te",
        b"trailer",
        b"transfer-encoding",
        b"upgrade",
    }
)
_REPLACED = frozenset(
    {
        b"content-length",
        b"expect",  # the server in front of us has handled it
        b"forwarded",
        b"host",
        b"x-real-ip",
        b"x-request-id",
    }
)
_FORWARDED = b"x-forwarded-"
_OF_HANDSHAKE = frozenset(
    {
        b"sec-websocket-accept",
        b"sec-websocket-extensions",
        b"sec-websocket-key",
        b"sec-websocket-protocol",
        b"sec-websocket-version",
    }
)


@dataclass(frozen=True, slots=True)
class Forwarded:
    """The origin of a request, as reported to the program."""

    client: str
    host: bytes
    scheme: str
    request_id: str

    def headers(self) -> list[tuple[bytes, bytes]]:
        return [
            (b"x-forwarded-for", self.client.encode("latin-1")),
            (b"x-forwarded-host", self.host),
            (b"x-forwarded-proto", self.scheme.encode()),
            (b"x-request-id", self.request_id.encode()),
        ]


def request_headers(
    headers: RawHeaders, forwarded: Forwarded, *, host: str | None
) -> list[tuple[bytes, bytes]]:
    """The headers for the program, without the gateway's credentials. `host` is the name that it
    expects, None for the requested one."""
    dropped = _REPLACED | _connection_headers(headers)
    own = [each for each in without_credentials(headers) if _goes_on(each[0], dropped)]
    host_name = forwarded.host if host is None else host.encode()
    return [(b"host", host_name), *own, *forwarded.headers()]


def _goes_on(name: bytes, dropped: frozenset[bytes]) -> bool:
    """Many programs read `_` as `-`: with such a name a client could impersonate the gateway."""
    read = name.replace(b"_", b"-")
    return read not in dropped and not read.startswith(_FORWARDED)


def body_headers(headers: RawHeaders) -> list[tuple[bytes, bytes]]:
    """The framing of the request's body, as read by the server in front of us."""
    codings = values_of(headers, b"transfer-encoding")
    if codings:
        if [each.strip().lower() for each in codings] != [b"chunked"]:
            raise TunnelRefusedError
        return [(b"transfer-encoding", b"chunked")]
    return [(b"content-length", each) for each in values_of(headers, b"content-length")[:1]]


def handshake_headers(
    headers: RawHeaders, forwarded: Forwarded, *, host: str | None
) -> list[tuple[bytes, bytes]]:
    passed = request_headers(headers, forwarded, host=host)
    return [each for each in passed if each[0] not in _OF_HANDSHAKE]


def canonical(headers: RawHeaders) -> list[tuple[bytes, bytes]]:
    """With their names as programs of before HTTP/2 expect them, such as `Content-Type`: the server
    in front of us has read all names in lower case."""
    return [
        (b"-".join(word.capitalize() for word in name.split(b"-")), value)
        for name, value in headers
    ]


def answer_headers(headers: RawHeaders) -> list[tuple[bytes, bytes]]:
    """The headers for the client; a program can't set the gateway's cookie, or one for other
    hosts."""
    dropped = _connection_headers(headers)
    return [
        (name, of_one_host(value) if name == b"set-cookie" else value)
        for name, value in headers
        if name not in dropped and not (name == b"set-cookie" and sets_cookie(value))
    ]


def _connection_headers(headers: RawHeaders) -> frozenset[bytes]:
    named = b",".join(values_of(headers, b"connection")).lower().split(b",")
    return _HOP_BY_HOP | {each.strip() for each in named}
