"""What can go wrong in the queue."""

from sandyard.kit.errors import InvalidError, NotFoundError


class TicketNotFoundError(NotFoundError):
    """There is no such ticket in the queue. It is served or dropped, or was never there."""


class InvalidPreferError(InvalidError):
    """Send `Prefer: wait=60` at most once, with whole seconds."""


class InvalidPriorityError(InvalidError):
    """Send `Priority: u=3` at most once, with an urgency from 0 (served first) to 7."""
