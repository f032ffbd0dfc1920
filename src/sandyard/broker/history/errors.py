"""What can go wrong with the calls that monitor the pool."""

from sandyard.kit.errors import NotFoundError


class JobNotFoundError(NotFoundError):
    """The Broker has no such job. `GET /v1/admin/jobs` lists them."""
