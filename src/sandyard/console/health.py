"""How the parts of this server are, for the admin's page."""

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class PartHealth:
    part: str
    engine: str
    trouble: str | None
    """Why it can't work; None if its engine answers and takes writes."""


CheckHealth = Callable[[], Awaitable[Sequence[PartHealth]]]
