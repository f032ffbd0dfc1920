"""Cursors: opaque positions in a listing, bound to the listing that made them."""

import base64
import binascii
import hashlib
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

import orjson

from sandyard.kit.errors import InvalidError
from sandyard.kit.patterns import pattern

T = TypeVar("T")

_SEAL_BYTES = 8
DEFAULT_LIMIT = 50
MAX_LIMIT = 100
CURSOR_PATTERN = pattern(
    "^[A-Za-z0-9_-]{1,1024}$", "must be the `next_cursor` of the page before, as it was"
)


class InvalidCursorError(InvalidError):
    """The cursor does not belong to this listing. Start again without a cursor."""


@dataclass(frozen=True, slots=True)
class Page(Generic[T]):
    items: Sequence[T]
    next_cursor: str | None


def encode_cursor(listing: str, position: Sequence[Any]) -> str:
    body = orjson.dumps(position)
    return base64.urlsafe_b64encode(_seal(listing, body) + body).decode().rstrip("=")


def decode_cursor(listing: str, cursor: str) -> list[Any]:
    """The position inside `cursor`; InvalidCursorError unless this listing made it.

    The seal is a checksum, not a signature: a forged cursor could only name another position in a
    listing that its caller may read anyway.
    """
    try:
        raw = base64.b64decode(cursor + "=" * (-len(cursor) % 4), altchars=b"-_", validate=True)
    except (binascii.Error, ValueError) as error:
        raise InvalidCursorError from error
    seal, body = raw[:_SEAL_BYTES], raw[_SEAL_BYTES:]
    if seal != _seal(listing, body) or b"\\u0000" in body:  # a NUL, which no engine stores
        raise InvalidCursorError
    try:
        position = orjson.loads(body)
    except orjson.JSONDecodeError as error:
        raise InvalidCursorError from error
    if not isinstance(position, list):
        raise InvalidCursorError
    return position


def position_in(listing: str, cursor: str | None, *kinds: type) -> list[Any] | None:
    """The position inside the cursor, a value of each of these types; None without a cursor. Raises
    InvalidCursorError."""
    if cursor is None:
        return None
    position = decode_cursor(listing, cursor)
    if tuple(map(type, position)) != kinds or "" in position:
        raise InvalidCursorError
    return position


def page_up_to(
    limit: int, found: Sequence[T], listing: str, position_of: Callable[[T], Sequence[Any]]
) -> Page[T]:
    """The first of these items; if there are more, with a cursor behind the last of them."""
    if len(found) <= limit:
        return Page(found, None)
    return Page(found[:limit], encode_cursor(listing, position_of(found[limit - 1])))


async def all_pages(
    listing: Callable[..., Awaitable[Page[T]]], *wanted: Any, limit: int, **named: Any
) -> AsyncIterator[Sequence[T]]:
    """The items of each page of a listing; some may have none."""
    cursor: str | None = None
    while True:
        page = await listing(*wanted, limit=limit, cursor=cursor, **named)
        yield page.items
        cursor = page.next_cursor
        if cursor is None:
            return


def page_in_order(
    items: Iterable[T], key: Callable[[T], str], *, listing: str, limit: int, cursor: str | None
) -> Page[T]:
    """A page of a short listing that is read completely, in the order of a key that is unique."""
    ordered = sorted(items, key=key)
    if (last := position_in(listing, cursor, str)) is not None:
        ordered = [each for each in ordered if key(each) > last[0]]
    return page_up_to(limit, ordered, listing, lambda each: [key(each)])


def _seal(listing: str, body: bytes) -> bytes:
    key = hashlib.blake2s(listing.encode()).digest()
    return hashlib.blake2s(body, digest_size=_SEAL_BYTES, key=key).digest()
