"""Changes and listings of entities, without any I/O."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Generic, TypeVar

from sandyard.kit.changes.transitions import Cause, E, Transition, changed

F = TypeVar("F")

FieldChanges = Mapping[str, Any]
"""New values of an entity's fields, by name; the others stay."""


@dataclass(frozen=True, slots=True)
class Listing(Generic[F]):
    """A page of the entities that match a filter."""

    only: F
    """A dataclass: entities match if they have the value of each field that is not None."""
    sort: str
    """A field's name; with a `-` before it, descending."""
    limit: int
    cursor: str | None


def updated(
    before: E, after: E, kind: str, cause: Cause, *, preconditions: tuple[Any, ...] = ()
) -> Transition[E] | None:
    """The change with its time in `updated_at`; None if nothing changes."""
    if after == before:
        return None
    dated = replace(after, updated_at=cause.at)  # type: ignore[type-var]
    return changed(before, dated, kind, cause, preconditions=preconditions)
