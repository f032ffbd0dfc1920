"""API keys, of which only a hash is stored, and the decisions about them, without any I/O."""

from dataclasses import dataclass, field, replace
from datetime import datetime
from enum import StrEnum
from typing import ClassVar

from sandyard.kit.changes.transitions import DATA, SECRET, Cause, Transition, changed, created
from sandyard.platform.access.credentials import hash_api_key
from sandyard.platform.access.principal import Principal, Scope
from sandyard.platform.api_keys.errors import ExpiryPassedError, KeyMakesNoKeysError
from sandyard.platform.entities.model import FieldChanges, updated
from sandyard.platform.notifications.model import Notice, NotificationType

_SHOWN_LETTERS = 8


class KeySort(StrEnum):
    NEWEST = "-created_at"
    OLDEST = "created_at"
    NAME = "name"
    NAME_REVERSED = "-name"


class KeyFormat(StrEnum):
    """Format of a key; the access is the same."""

    SANDYARD = "sandyard"
    E2B = "e2b"


@dataclass(frozen=True, slots=True)
class AccountKey:
    SUBJECT: ClassVar[str] = "key_id"
    OWNER: ClassVar[str | None] = "user_account_id"

    key_id: str
    user_account_id: str
    name: str
    description: str | None
    api_key: str
    """The beginning of the key, by which its owner recognizes it."""
    key_hash: str = field(repr=False, metadata=SECRET)
    is_active: bool
    last_used_at: datetime | None = field(metadata=DATA)
    created_at: datetime
    updated_at: datetime
    deleted_at: datetime | None = None
    scope: Scope = Scope.ADMIN
    expires_at: datetime | None = None
    """From when on it is invalid."""
    sequence: int = 0


@dataclass(frozen=True, slots=True)
class NewKey:
    name: str
    description: str | None
    scope: Scope = Scope.ADMIN
    expires_at: datetime | None = None
    format: KeyFormat = KeyFormat.SANDYARD


@dataclass(frozen=True, slots=True)
class KeyFilter:
    search: str | None = None
    is_active: bool | None = None


def create_key(
    new: NewKey,
    *,
    key_id: str,
    api_key: str,
    by: Principal,
    cause: Cause,
) -> Transition[AccountKey]:
    """Only the beginning and the hash of the key are stored. KeyMakesNoKeysError,
    ExpiryPassedError."""
    if by.key_id is not None:
        raise KeyMakesNoKeysError
    if new.expires_at is not None and new.expires_at <= cause.at:
        raise ExpiryPassedError
    key = AccountKey(
        key_id=key_id,
        user_account_id=by.account_id,
        name=new.name,
        description=new.description,
        api_key=api_key[:_SHOWN_LETTERS],
        key_hash=hash_api_key(api_key),
        is_active=True,
        last_used_at=None,
        created_at=cause.at,
        updated_at=cause.at,
        scope=new.scope,
        expires_at=new.expires_at,
    )
    return created(key, "key.created", cause)


def update_key(
    key: AccountKey, changes: FieldChanges, cause: Cause
) -> Transition[AccountKey] | None:
    return updated(key, replace(key, **changes), "key.updated", cause)


def activate_key(key: AccountKey, cause: Cause) -> Transition[AccountKey] | None:
    return updated(key, replace(key, is_active=True), "key.activated", cause)


def deactivate_key(key: AccountKey, cause: Cause) -> Transition[AccountKey] | None:
    return updated(key, replace(key, is_active=False), "key.deactivated", cause)


def revoke_key(key: AccountKey, cause: Cause) -> Transition[AccountKey]:
    revoked = replace(key, is_active=False, deleted_at=cause.at, updated_at=cause.at)
    return changed(key, revoked, "key.revoked", cause)


def new_key_notice(key: AccountKey) -> Notice:
    return Notice(
        "New API key",
        f"The API key {key.name} ({key.api_key}…) was created. If it was not you, delete it and "
        "change your password.",
        NotificationType.SUCCESS,
        related_entity_type="api_key",
        related_entity_id=key.key_id,
    )
