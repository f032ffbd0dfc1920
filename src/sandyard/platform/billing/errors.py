"""What can go wrong with a charge."""

from sandyard.kit.errors import ConflictError, NotFoundError


class ChargeExistsError(ConflictError):
    """Another charge was made with this `Idempotency-Key`. Send a new key, or the same body as
    before."""


class ChargedAccountUnknownError(NotFoundError):
    """There is no account with this id, so nothing was charged. List the users to find it."""
