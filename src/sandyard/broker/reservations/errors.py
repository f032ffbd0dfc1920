"""What can go wrong with a reservation."""

from sandyard.kit.errors import ConflictError, InvalidError, NotFoundError


class ReservationNotFoundError(NotFoundError):
    """There is no reservation with this id. List them with their times to find it."""


class OverbookedError(ConflictError):
    """The pool is too small for this reservation and the others at that time. Request at most
    `possible` of the details, choose another time, or raise POOL_MAX_TOTAL."""

    def __init__(self, *, possible: int) -> None:
        super().__init__(details={"possible": possible})


class ReservationExistsError(ConflictError):
    """Another reservation was made with this `Idempotency-Key`. Send a new key, or the same body as
    before."""


class InvalidReservationError(InvalidError):
    """Send a `to` that is later than `from` and than now, at most 366 days after `from`, and
    either `track_prefix` or `client`."""
