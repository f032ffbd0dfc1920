"""The account and permissions behind a login or an API key, looked up on each request."""

import hashlib
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Protocol

from sandyard.platform.access.principal import Role, Scope


@dataclass(frozen=True, slots=True)
class AccountCredential:
    account_id: str
    role: Role
    is_active: bool
    token_version: int

    def has_login(self, token_version: int | None) -> bool:
        return self.is_active and self.token_version == token_version


@dataclass(frozen=True, slots=True)
class KeyCredential:
    account: AccountCredential
    key_id: str
    is_active: bool
    last_used_at: datetime | None
    scope: Scope
    expires_at: datetime | None

    def holds_at(self, now: datetime) -> bool:
        is_over = self.expires_at is not None and self.expires_at <= now
        return self.is_active and self.account.is_active and not is_over


class CredentialLookup(Protocol):
    """Credentials as last written, never cached."""

    async def find_account(self, account_id: str) -> AccountCredential | None: ...

    async def find_key(self, key_hash: str) -> KeyCredential | None:
        """The key and its account, in one statement; None if there is none, or it was deleted."""

    async def find_key_by_id(self, key_id: str) -> KeyCredential | None:
        """The same by the id of a key that was used before."""

    async def with_keys(
        self, account_ids: Collection[str]
    ) -> Sequence[tuple[AccountCredential, Sequence[KeyCredential]]]:
        """The accounts, each with its keys that were not deleted."""

    async def touch_key(self, key_id: str, *, now: datetime, unless_after: datetime) -> None:
        """Record that the key was used at `now`, unless a use after `unless_after` is recorded."""


def hash_api_key(api_key: str) -> str:
    """Enough for a key of 200 random bits, which can't be guessed."""
    return hashlib.sha256(api_key.encode()).hexdigest()
