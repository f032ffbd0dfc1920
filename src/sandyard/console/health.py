"""Health of this server's parts, for the admin page."""

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class PartHealth:
    part: str
    engine: str
    trouble: str | None
    """Why it does not work; None if its engine responds and accepts writes."""


CheckHealth = Callable[[], Awaitable[Sequence[PartHealth]]]
