"""What a caller wants listed, without any I/O."""

from dataclasses import dataclass
from typing import Generic, TypeVar

F = TypeVar("F")


@dataclass(frozen=True, slots=True)
class Listing(Generic[F]):
    """A page of the entities that match a filter."""

    only: F
    """A dataclass: entities match if they have the value of each field that is not None."""
    sort: str
    """A field's name; with a `-` before it, descending."""
    limit: int
    cursor: str | None
