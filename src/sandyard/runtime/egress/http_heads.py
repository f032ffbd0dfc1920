"""The heads of requests to the egress proxy: parsed strictly, and rewritten."""

import re
from dataclasses import dataclass

MOST_HEAD_BYTES = 16 * 1024
_CONNECT = re.compile(
    rb"CONNECT (\[[0-9A-Fa-f:.]{2,45}\]|[^\s\[\]/@:?#]{1,253}):(\d{1,5}) HTTP/1\.[01]"
)
_ABSOLUTE = re.compile(
    rb"(?!CONNECT )([A-Z]{1,20}) http://(\[[0-9A-Fa-f:.]{2,45}\]|[^\s\[\]/@:?#]{1,253})(?::(\d{1,5}))?"
    rb"([/?][!-~]*)? HTTP/1\.[01]",
    re.IGNORECASE,
)
_ORIGIN = re.compile(rb"([A-Z]{1,20}) (/[!-~]*|\*) HTTP/1\.[01]")
_FIELD = re.compile(rb"([!#$%&'*+.^_`|~0-9A-Za-z-]+):[ \t]*([^\x00\r\n]*?)[ \t]*")
_IS_HOST = re.compile(rb"\s*host\s*:", re.IGNORECASE)
_HOST_FIELD = re.compile(rb"host:[ \t]*([^\s:]+)(?::\d*)?[ \t]*", re.IGNORECASE)
_NAME = re.compile(r"[a-z0-9._-]+|[0-9a-f:.]+")
_HOP_BY_HOP = frozenset(
    {
        *(b"connection", b"proxy-connection", b"keep-alive", b"te", b"trailer", b"upgrade"),
        *(b"proxy-authorization", b"proxy-authenticate", b"expect", b"host"),
    }
)


_OF_CONNECTIONS = frozenset({b"connection", b"keep-alive", b"proxy-connection", b"upgrade"})


class ProxyError(Exception):
    """What the proxy answers instead of passing on: a status, and the message says why."""

    def __init__(self, message: str, status: int = 400) -> None:
        super().__init__(message)
        self.status = status


class OtherHostError(ProxyError):
    """The request is for another host than the connection."""


@dataclass(frozen=True, slots=True)
class ProxyRequest:
    """A tunnel to a host, or one plain request with the head to send there."""

    host: str
    port: int
    head: bytes | None = None
    """None for a tunnel."""
    body_bytes: int = 0


def parse_request(head: bytes) -> ProxyRequest:
    """Raises ProxyError."""
    first, *lines = head.removesuffix(b"\r\n\r\n").split(b"\r\n")
    fields = [_field(line) for line in lines]
    if found := _CONNECT.fullmatch(first):
        return ProxyRequest(_host(found[1]), _port(found[2]))
    if (found := _ABSOLUTE.fullmatch(first)) is None:
        raise ProxyError("this is a proxy: request http://host/path or CONNECT host:port")
    target = found[4] or b"/"
    target = b"/" + target if target.startswith(b"?") else target
    host, port = found[2], _port(found[3] or b"80")
    head = _written(found[1].upper(), target, host, port, fields)
    return ProxyRequest(_host(host), port, head, _body_bytes(fields))


def parse_direct_request(head: bytes, host: str, port: int) -> ProxyRequest:
    """A request sent to this host as to a server. Raises ProxyError; OtherHostError if it
    names another host."""
    first, *lines = head.removesuffix(b"\r\n\r\n").split(b"\r\n")
    fields = [_field(line) for line in lines]
    if (found := _ORIGIN.fullmatch(first)) is None:
        raise ProxyError("the request line is malformed")
    if not names_host(head, host):
        raise OtherHostError("it names another host")
    head = _written(found[1], found[2], host.encode(), port, fields)
    return ProxyRequest(host, port, head, _body_bytes(fields))


def names_host(head: bytes, host: str) -> bool:
    """Whether the head of a request names this host, or none."""
    lines = head.split(b"\r\n\r\n")[0].split(b"\r\n")[1:]
    found = [_HOST_FIELD.fullmatch(line) for line in lines if _IS_HOST.match(line)]
    hosts = [each and each[1].decode("latin-1").lower().removesuffix(".") for each in found]
    return len(hosts) <= 1 and all(each == host for each in hosts)


def _written(
    method: bytes, target: bytes, host: bytes, port: int, fields: list[tuple[bytes, bytes]]
) -> bytes:
    """The head of a request that is alone on its connection."""
    authority = host if port == 80 else host + b":" + str(port).encode()
    named = {word for name, value in fields if name == b"connection" for word in _words(value)}
    forwarded = [each for each in fields if each[0] not in _HOP_BY_HOP | named]
    lines = [method + b" " + target + b" HTTP/1.1", b"Host: " + authority]
    lines += [name + b": " + value for name, value in forwarded]
    return b"\r\n".join([*lines, b"Connection: close", b"", b""])


def closing_answer(head: bytes) -> bytes:
    """The head of a response, changed to close its connection."""
    first, *lines = head.removesuffix(b"\r\n\r\n").split(b"\r\n")
    others = [line for line in lines if line.split(b":")[0].strip().lower() not in _OF_CONNECTIONS]
    return b"\r\n".join([first, *others, b"Connection: close", b"", b""])


def _field(line: bytes) -> tuple[bytes, bytes]:
    """Refuses folded lines and spaces before the colon: parsers disagree on them."""
    if (found := _FIELD.fullmatch(line)) is None:
        raise ProxyError("a header line is malformed")
    return found[1].lower(), found[2]


def _words(value: bytes) -> set[bytes]:
    return {word.strip().lower() for word in value.split(b",")} - {b"content-length"}


def _body_bytes(fields: list[tuple[bytes, bytes]]) -> int:
    lengths = [value for name, value in fields if name == b"content-length"]
    if any(name == b"transfer-encoding" for name, _ in fields):
        raise ProxyError("send a Content-Length instead of a Transfer-Encoding", 411)
    if len(lengths) > 1 or not all(re.fullmatch(rb"\d{1,15}", length) for length in lengths):
        raise ProxyError("its Content-Length is malformed")
    return int(lengths[0]) if lengths else 0


def _host(text: bytes) -> str:
    try:
        host = text.decode("ascii").strip("[]").lower().removesuffix(".")
    except UnicodeDecodeError:
        raise ProxyError("its host is not a valid name") from None
    if not _NAME.fullmatch(host):
        raise ProxyError("its host is not a valid name")
    return host


def _port(text: bytes) -> int:
    if not 0 < (port := int(text)) < 65536:
        raise ProxyError("its port is invalid")
    return port
