"""An account's limit of a resource, and its use."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class ResourceQuota:
    resource: str
    """The name has the unit, unless it is a count."""
    in_use: int | float
    limit: int | float | None
    """None if there is no limit."""
