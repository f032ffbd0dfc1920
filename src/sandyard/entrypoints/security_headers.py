"""Headers that every answer has, so that browsers neither guess, frame, leak nor keep it."""

from functools import lru_cache

from sandyard.kit.http.requests import RawHeaders

_UNLESS_SET = {
    b"x-content-type-options": b"nosniff",
    b"x-frame-options": b"DENY",
    b"referrer-policy": b"no-referrer",
    b"cache-control": b"no-store",
    b"content-security-policy": b"default-src 'none'; frame-ancestors 'none'",
}
"""Pages and files, which are no one's secret, say what suits them."""


def with_security_headers(headers: RawHeaders) -> list[tuple[bytes, bytes]]:
    return [*headers, *_missing(tuple([name for name, _ in headers]))]


@lru_cache
def _missing(own: tuple[bytes, ...]) -> list[tuple[bytes, bytes]]:
    return [each for each in _UNLESS_SET.items() if each[0] not in own]
