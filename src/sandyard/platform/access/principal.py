"""The account that a request comes from."""

from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum

from sandyard.kit.changes.events import actor


class Role(StrEnum):
    USER = "user"
    ADMIN = "admin"


class Scope(StrEnum):
    """What an API key may do; each includes the ones before it."""

    READ = "read"
    RUN = "run"
    ADMIN = "admin"

    def includes(self, other: "Scope") -> bool:
        order = list(Scope)
        return order.index(self) >= order.index(other)


@dataclass(frozen=True, slots=True)
class Principal:
    """An account that was authenticated by a login or by one of its API keys."""

    account_id: str
    role: Role
    key_id: str | None = None
    """The API key that was sent; None with a login."""
    scope: Scope = Scope.ADMIN
    token_version: int | None = None
    """The account's when the credential was checked."""
    expires_at: datetime | None = None
    """When the login ends."""
    acts_as: str | None = None
    """The actor in events of work that the account did not request itself."""

    @property
    def is_admin(self) -> bool:
        return self.role is Role.ADMIN

    @property
    def actor(self) -> str:
        if self.acts_as is not None:
            return self.acts_as
        if self.key_id is not None:
            return actor("key", self.key_id)
        return actor("account", self.account_id)
