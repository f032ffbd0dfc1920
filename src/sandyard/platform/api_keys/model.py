"""API keys, of which only a hash is kept."""

import hashlib
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from typing import TypedDict

from sandyard.platform.notifications.model import Notice, NotificationType

_SHOWN_LETTERS = 8


class KeySort(StrEnum):
    NEWEST = "-created_at"
    OLDEST = "created_at"
    NAME = "name"
    NAME_REVERSED = "-name"


class KeyChanges(TypedDict, total=False):
    """What is left out stays as it is."""

    name: str
    description: str | None
    is_active: bool


@dataclass(frozen=True, slots=True)
class AccountKey:
    key_id: str
    user_account_id: str
    name: str
    description: str | None
    api_key: str
    """How the key begins, so that its owner can tell it from others."""
    is_active: bool
    last_used_at: datetime | None
    created_at: datetime
    updated_at: datetime


@dataclass(frozen=True, slots=True)
class KeyFilter:
    search: str | None = None
    is_active: bool | None = None


def hash_api_key(api_key: str) -> str:
    """Enough for a key of 200 random bits, which no list of likely keys contains."""
    return hashlib.sha256(api_key.encode()).hexdigest()


def beginning_of(api_key: str) -> str:
    return api_key[:_SHOWN_LETTERS]


def new_key_notice(key: AccountKey) -> Notice:
    return Notice(
        "New API key",
        f"The API key {key.name} ({key.api_key}…) was made. If it was not you, delete it and "
        "change your password.",
        NotificationType.INFO,
        related_entity_type="api_key",
        related_entity_id=key.key_id,
    )
