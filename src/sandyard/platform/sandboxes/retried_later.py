"""Work that a job repeats if it fails."""

import logging
from collections.abc import Iterator
from contextlib import contextmanager

from sandyard.kit.errors import ConflictError, NotFoundError, UnavailableError

logger = logging.getLogger(__name__)


@contextmanager
def retried_later(action: str, sandbox_id: str) -> Iterator[None]:
    """An outage, a concurrent change or something that is gone does not fail the caller: a job
    tries again. Outages are logged."""
    try:
        yield
    except UnavailableError as error:
        logger.warning(
            "left to the next run: %s",
            error.message,
            extra={"action": action, "sandbox_id": sandbox_id, "reason": error.reason},
        )
    except (ConflictError, NotFoundError):
        pass
