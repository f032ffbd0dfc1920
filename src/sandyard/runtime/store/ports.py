"""The interface of an object store."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol


@dataclass(frozen=True, slots=True)
class StoredObject:
    key: str
    size_bytes: int
    modified_at: float
    """By the store's clock."""


class ObjectStore(Protocol):
    """Objects by key: names with `/` between their parts. An object is complete or absent.

    Every method blocks, and may be called by several threads. Every method raises
    StoreUnavailableError if the store can't be reached, is full, or refuses; that is never reported
    as a missing object or a shorter list.
    """

    address: str
    """As an operator names it."""

    def initialise(self) -> None:
        """Make an empty store, if there is none. Only then may a missing folder be made: later it
        is an outage, such as a share that is not mounted."""

    def put(self, key: str, source: Path | None = None) -> None:
        """Store the file's content, in parts; an empty object without a file. Returns when it is
        durable. Replaces one of the same key."""

    def put_named(self, source: Path, key_of: Callable[[str], str | None]) -> None:
        """As `put`, under the key that `key_of` returns for the SHA-256 of the file's content;
        nothing is stored if that is None."""

    def get(self, key: str, to: Path) -> str | None:
        """Write the content to this file, in parts. Returns its SHA-256, None if there is no
        such object."""

    def find(self, key: str) -> StoredObject | None: ...

    def list(self, prefix: str) -> Iterator[StoredObject]:
        """All whose keys begin with the prefix."""

    def delete(self, key: str) -> None:
        """Return when it no longer exists."""

    def remove_drafts(self, *, before_at: float) -> None:
        """Remove what uploads left behind that broke off before then."""
