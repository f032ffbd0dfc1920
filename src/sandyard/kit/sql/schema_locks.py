"""Locks that a migration takes while servers keep running. Released migrations call this."""

import random
import time

import sqlalchemy as sa
from sqlalchemy import exc

from sandyard.kit.errors import UnavailableError

_WAIT_MS = 200
"""Shorter than the second after which PostgreSQL checks for deadlocks and aborts a transaction."""
_TRIES = 200
_NOT_AVAILABLE = "55P03"


def lock_tables(connection: sa.Connection, *names: str) -> None:
    """Lock these tables until the transaction ends; other users of them wait.

    Servers use several tables in varying order. So locks are held only briefly while waiting for
    the rest; then all are released for the next attempt.
    """
    for _ in range(_TRIES):
        try:
            with connection.begin_nested():
                connection.exec_driver_sql(f"SET LOCAL lock_timeout = '{_WAIT_MS}ms'")
                connection.exec_driver_sql(f"LOCK TABLE {', '.join(names)}")
                connection.exec_driver_sql("SET LOCAL lock_timeout TO DEFAULT")
        except exc.DBAPIError as error:
            if getattr(error.orig, "sqlstate", None) != _NOT_AVAILABLE:
                raise
            time.sleep(random.uniform(0.05, 0.2))  # noqa: S311 - no secret
        else:
            return
    raise UnavailableError(
        "The tables are locked by other transactions. Try again when there is less load."
    )
