"""Whom a request comes from."""

from dataclasses import dataclass
from enum import StrEnum

from sandyard.kit.events import actor


class Role(StrEnum):
    USER = "user"
    ADMIN = "admin"


@dataclass(frozen=True, slots=True)
class Principal:
    """An account that has shown who it is, by a login or by one of its API keys."""

    account_id: str
    role: Role
    key_id: str | None = None
    """The API key that was sent; None with a login."""

    @property
    def is_admin(self) -> bool:
        return self.role is Role.ADMIN

    @property
    def actor(self) -> str:
        """Who acts, as events tell it."""
        if self.key_id is not None:
            return actor("key", self.key_id)
        return actor("account", self.account_id)
