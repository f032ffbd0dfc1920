"""A part's contents as its stores read and write them, for moves between unlike engines."""

from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Any

from sandyard.kit.changes.events import EventLog


async def _nothing() -> None:
    pass


@dataclass(frozen=True, slots=True)
class Collection:
    """All entities or records of one kind, as objects of the part's model."""

    name: str
    read: Callable[[], AsyncIterator[Sequence[Any]]]
    write: Callable[[Sequence[Any]], Awaitable[None]]
    """Adds these; those that are there stay as they are."""
    finish: Callable[[], Awaitable[None]] = _nothing
    """Called after the last ones were added."""


def event_collection(log: EventLog) -> Collection:
    return Collection("events", log.everything, log.restore, log.finish_restore)
