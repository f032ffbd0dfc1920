"""Logins to PostgreSQL: each new connection uses the current user and password."""

from typing import Any

import sqlalchemy as sa

from sandyard.kit.rotation import Secret

_REFUSED = frozenset({"28P01", "28000"})
"""Error codes for a wrong password or user."""


class PostgresLogin:
    """Open connections stay open when the password changes."""

    def __init__(self, url: Secret, password: Secret) -> None:
        """`password`, if set, overrides the one in the URL."""
        self._url = url
        self._password = password

    @property
    def url(self) -> sa.URL:
        url = sa.make_url(self._url[0])
        return url.set(password=self._password[0]) if self._password else url

    async def connect(self, *arguments: Any, **options: Any) -> Any:
        """Like `asyncpg.connect`; if the login is refused, retries once with the newest one."""
        import asyncpg

        try:
            return await asyncpg.connect(*arguments, **options | self._login())
        except asyncpg.PostgresError as error:
            if error.sqlstate not in _REFUSED:
                raise
        await self._url.reload()
        await self._password.reload()
        return await asyncpg.connect(*arguments, **options | self._login())

    def _login(self) -> dict[str, str]:
        url = self.url
        parts = {"user": url.username, "password": url.password}
        return {name: str(value) for name, value in parts.items() if value is not None}
