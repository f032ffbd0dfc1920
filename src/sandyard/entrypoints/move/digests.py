"""Counts and hashes of what a store has, independent of order and engine."""

import hashlib
from collections.abc import Iterable
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

import orjson

_MODULUS = 2**128
_OPTIONS = orjson.OPT_SORT_KEYS | orjson.OPT_UTC_Z


@dataclass(slots=True)
class Digest:
    """The number of records, and the sum of their hashes."""

    count: int = 0
    total: int = 0

    def add(self, records: Iterable[Any]) -> None:
        for record in records:
            text = orjson.dumps(record, default=_plain, option=_OPTIONS)
            hashed = hashlib.blake2b(text, digest_size=16).digest()
            self.total = (self.total + int.from_bytes(hashed)) % _MODULUS
            self.count += 1


def _plain(value: Any) -> Any:
    match value:
        case Decimal():
            return f"{value:f}"
        case bytes():
            return value.hex()
        case _:
            return list(value)
