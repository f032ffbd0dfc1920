"""Security headers of every response, against sniffing, framing, referrer leaks and caching."""

from functools import lru_cache

from sandyard.kit.http.requests import RawHeaders

_UNLESS_SET = {
    b"x-content-type-options": b"nosniff",
    b"x-frame-options": b"DENY",
    b"referrer-policy": b"no-referrer",
    b"cache-control": b"no-store",
    b"content-security-policy": b"default-src 'none'; frame-ancestors 'none'",
}
"""Defaults; pages and public files set their own values."""


def with_security_headers(headers: RawHeaders) -> list[tuple[bytes, bytes]]:
    return [*headers, *_missing(tuple([name for name, _ in headers]))]


@lru_cache
def _missing(own: tuple[bytes, ...]) -> list[tuple[bytes, bytes]]:
    return [each for each in _UNLESS_SET.items() if each[0] not in own]
