"""Whom a request comes from."""

from dataclasses import dataclass
from enum import StrEnum


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
