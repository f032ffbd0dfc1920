"""A PostgreSQL that can't be used says what is wrong, and which setting to correct."""

import re
from collections.abc import Callable

import pytest
import sqlalchemy as sa

from sandyard.kit.errors import UnavailableError, with_reason
from sandyard.kit.sql.database import PostgresDatabase, raise_unavailable

LISTENS_NOWHERE = "nothing listens there. Start it, or correct host and port in DATABASE_URL"
TROUBLES: dict[str, tuple[Callable[[sa.URL], sa.URL], str, str]] = {
    "user": (
        lambda url: url.set(username="nobody"),
        "refuses the login. Correct the user and password (DATABASE_URL, DATABASE_PASSWORD)",
        'role "nobody" does not exist',
    ),
    "database": (
        lambda url: url.set(database="none"),
        "has no such database. Create it, or correct the name in DATABASE_URL",
        'database "none" does not exist',
    ),
    "host": (
        lambda url: url.set(host="host.invalid", query={}),
        "its host name is unknown. Correct it in DATABASE_URL",
        "",
    ),
    "port": (lambda url: url.set(host="127.0.0.1", port=9, query={}), LISTENS_NOWHERE, "9"),
    "socket": (lambda url: url.set(query={"host": "/nonexistent"}), LISTENS_NOWHERE, ""),
}


@pytest.mark.parametrize("wrong", TROUBLES)
async def test_a_wrong_address_or_login_is_named(wrong: str, postgres_url: str) -> None:
    changed, message, reason = TROUBLES[wrong]
    database = PostgresDatabase(changed(sa.make_url(postgres_url)), pool_size=1)
    try:
        for use in (database.read, database.write):
            with pytest.raises(UnavailableError, match=re.escape(message)) as caught:
                await use(lambda connection: connection.execute(sa.select(1)))
            assert reason in with_reason(caught.value)
    finally:
        await database.close()


async def test_missing_tables_are_told_with_the_command_that_creates_them(
    postgres_url: str,
) -> None:
    database = PostgresDatabase(sa.make_url(postgres_url), pool_size=1)
    try:
        with pytest.raises(UnavailableError, match="Run `sandyard db upgrade`"):
            await database.read(
                lambda connection: connection.execute(sa.text("SELECT 1 FROM broker.sandboxes"))
            )
    finally:
        await database.close()


@pytest.mark.parametrize(
    ("code", "message"),
    [
        ("28P01", "Correct the user and password"),
        ("42501", "Grant the privilege"),
        ("53300", "lower DATABASE_POOL_SIZE"),
        ("57P01", "does not respond. Try again shortly"),
    ],
)
def test_what_the_engine_answers_is_told_by_its_code(code: str, message: str) -> None:
    class DriverError(Exception):
        sqlstate = code

    with pytest.raises(UnavailableError, match=re.escape(message)):
        raise_unavailable(DriverError("no"), "postgresql")
