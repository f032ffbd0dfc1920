"""Finds the gateway's own credentials in a request, and removes them before it is forwarded."""

from dataclasses import dataclass
from ipaddress import ip_address
from urllib.parse import unquote_to_bytes

from sandyard.gateway.tokens import PREFIX
from sandyard.kit.http.security import RawHeaders, values_of

TARGET_COOKIE = "__Host-sandyard"
"""At the host of a sandbox; the console has one of this name at its own host."""
HEADER = b"x-access-token"
E2B_HEADER = b"e2b-traffic-access-token"
"""The header that E2B's clients use."""
PARAMETER = "sandyard_token"
_COOKIE = TARGET_COOKIE.encode()
_PARAMETER = PARAMETER.encode()


@dataclass(frozen=True, slots=True)
class Credentials:
    """Each as sent, unchecked; None if absent."""

    header: str | None = None
    link: str | None = None
    cookie: str | None = None
    has_traffic_token: bool = False
    """Whether E2B's header was sent, valid or not."""


def find_credentials(headers: RawHeaders, query: bytes) -> Credentials:
    sent = values_of(headers, HEADER) + values_of(headers, E2B_HEADER)
    links = [value for name, value in _parameters(query) if name == _PARAMETER]
    cookies = [value for name, value in _cookies(headers) if name == _COOKIE]
    return Credentials(
        header=_only([each for each in sent if _is_ours(each)]),
        link=_only([unquote_to_bytes(each) for each in links]),
        cookie=_only(cookies),
        has_traffic_token=bool(values_of(headers, E2B_HEADER)),
    )


def _only(values: list[bytes]) -> str | None:
    """Several values are ambiguous, so they grant nothing."""
    if not values:
        return None
    return values[0].decode("latin-1") if len(values) == 1 else ""


def _is_ours(value: bytes) -> bool:
    """A program may use a header of this name for its own tokens."""
    return value.strip().startswith(PREFIX.encode())


def without_credentials(headers: RawHeaders) -> list[tuple[bytes, bytes]]:
    forwarded = []
    for name, value in headers:
        if name in (HEADER, E2B_HEADER) and _is_ours(value):
            continue
        if name == b"cookie" and _COOKIE in value:
            value = b"; ".join(each for each in _pairs(value) if _name(each) != _COOKIE)
            if not value:
                continue
        forwarded.append((name, value))
    return forwarded


def without_link(query: bytes) -> bytes:
    if _PARAMETER not in query:
        return query
    return b"&".join(each for each in query.split(b"&") if _name(each) != _PARAMETER)


def sets_cookie(value: bytes) -> bool:
    """Whether a program's `Set-Cookie` sets the gateway's cookie."""
    return _name(value.partition(b";")[0].strip()) == _COOKIE


def of_one_host(value: bytes) -> bytes:
    """A program's `Set-Cookie` without its domain: sibling hosts are other sandboxes."""
    cookie, *attributes = value.split(b";")
    remaining = [each for each in attributes if _name(each).lower() != b"domain"]
    return b";".join([cookie, *remaining])


def cookie_header(token: str, *, max_age_sec: int) -> bytes:
    """For this host only. `None` and `Partitioned`: a preview may be shown in a frame, and a cookie
    set in one site's frame is not available to other sites."""
    attributes = f"Path=/; Max-Age={max_age_sec}; Secure; HttpOnly; SameSite=None; Partitioned"
    return f"{TARGET_COOKIE}={token}; {attributes}".encode()


def _parameters(query: bytes) -> list[tuple[bytes, bytes]]:
    pairs = [each.partition(b"=") for each in query.split(b"&")]
    return [(name, value) for name, _, value in pairs]


def _cookies(headers: RawHeaders) -> list[tuple[bytes, bytes]]:
    pairs = [
        pair.partition(b"=") for value in values_of(headers, b"cookie") for pair in _pairs(value)
    ]
    return [(name.strip(), value.strip()) for name, _, value in pairs]


def _pairs(cookies: bytes) -> list[bytes]:
    return [each.strip() for each in cookies.split(b";")]


def _name(pair: bytes) -> bytes:
    return pair.partition(b"=")[0].strip()


def registrable_domain(host: str) -> str | None:
    """The registered domain, such as `example.co.uk`; None for an address and for a public suffix,
    such as `localhost`: no cookie can be set for those."""
    if _is_address(host):
        return None
    from publicsuffixlist import PublicSuffixList

    found = PublicSuffixList().privatesuffix(host.lower().rstrip("."))
    return None if found is None else str(found)


def share_cookies(host: str, other: str) -> bool:
    registrable = registrable_domain(host)
    return registrable is not None and registrable == registrable_domain(other)


def _is_address(host: str) -> bool:
    try:
        ip_address(host)
    except ValueError:
        return False
    return True
