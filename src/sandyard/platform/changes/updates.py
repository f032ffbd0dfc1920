"""Changes of entities that have `updated_at`."""

from dataclasses import replace
from typing import Any

from sandyard.kit.changes.transitions import Cause, E, Transition, changed


def updated(
    before: E, after: E, kind: str, cause: Cause, *, preconditions: tuple[Any, ...] = ()
) -> Transition[E] | None:
    """The change with its time in `updated_at`; None if nothing changes."""
    if after == before:
        return None
    dated = replace(after, updated_at=cause.at)  # type: ignore[type-var]
    return changed(before, dated, kind, cause, preconditions=preconditions)
