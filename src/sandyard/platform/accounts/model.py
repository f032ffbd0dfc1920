"""Accounts, and what may be decided about them without any I/O."""

import hashlib
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from decimal import Decimal
from enum import StrEnum
from typing import TypedDict

from sandyard.platform.accounts.errors import LastAdminError, OwnAccountError
from sandyard.platform.principal import Role

VERIFICATION_LIFETIME = timedelta(hours=24)
RESET_LIFETIME = timedelta(hours=1)

_ATOM = r"[A-Za-z0-9!#$%&'*+/=?^_`{|}~-]+"
_LABEL = r"[A-Za-z0-9]([A-Za-z0-9-]{0,61}[A-Za-z0-9])?"
EMAIL = rf"^{_ATOM}(\.{_ATOM})*@({_LABEL}\.)+{_LABEL}$"
"""An address alone: no display name, no quotes, no comments."""
USERNAME = r"^[A-Za-z0-9._-]+$"


class AccountSort(StrEnum):
    NEWEST = "-created_at"
    OLDEST = "created_at"
    EMAIL = "email"
    USERNAME = "username"


@dataclass(frozen=True, slots=True)
class Account:
    account_id: str
    email: str
    username: str
    password_hash: str = field(repr=False)
    full_name: str | None
    role: Role
    is_active: bool
    is_verified: bool
    token_version: int
    spend_threshold: Decimal | None
    last_login: datetime | None
    created_at: datetime
    updated_at: datetime


@dataclass(frozen=True, slots=True)
class PendingSignup:
    """An account that waits for its mail to be read."""

    signup_id: str
    email: str
    username: str
    full_name: str | None
    verification_token: str = field(repr=False)
    """As `hash_token` makes it."""
    password_hash: str = field(repr=False)
    created_at: datetime
    expires_at: datetime


@dataclass(frozen=True, slots=True)
class Taken:
    """What of a sign-up another account has already."""

    email: bool
    username: bool


@dataclass(frozen=True, slots=True)
class AccountFilter:
    search: str | None = None
    role: Role | None = None
    is_active: bool | None = None


class ProfileChanges(TypedDict, total=False):
    """What is left out stays as it is."""

    full_name: str | None
    spend_threshold: Decimal | None


Decide = Callable[[Account, int], Account]
"""The account as it should be, from it as it is and the number of other active admins."""


def normal_email(email: str) -> str:
    return email.lower()


def hash_token(token: str) -> str:
    """Tokens of mails are random enough that a plain hash hides them."""
    return hashlib.sha256(token.encode()).hexdigest()


def new_account(
    *,
    account_id: str,
    email: str,
    username: str,
    full_name: str | None,
    password_hash: str,
    now: datetime,
    role: Role = Role.USER,
) -> Account:
    """An account whose e-mail address is known to be right."""
    return Account(
        account_id=account_id,
        email=email,
        username=username,
        password_hash=password_hash,
        full_name=full_name,
        role=role,
        is_active=True,
        is_verified=True,
        token_version=0,
        spend_threshold=None,
        last_login=None,
        created_at=now,
        updated_at=now,
    )


def activate(account: Account, _other_admins: int) -> Account:
    return replace(account, is_active=True)


def deactivate_by(admin_id: str) -> Decide:
    """Ends the account's logins and keys at once. Nobody deactivates himself or the last admin."""

    def decide(account: Account, other_admins: int) -> Account:
        if account.account_id == admin_id:
            raise OwnAccountError
        _require_admin_left(account, other_admins)
        return _changed(account, replace(account, is_active=False))

    return decide


def give_role(role: Role) -> Decide:
    """Ends the account's logins, so that the next one begins with the new role."""

    def decide(account: Account, other_admins: int) -> Account:
        if role is not Role.ADMIN:
            _require_admin_left(account, other_admins)
        return _changed(account, replace(account, role=role))

    return decide


def _require_admin_left(account: Account, other_admins: int) -> None:
    if account.role is Role.ADMIN and account.is_active and other_admins == 0:
        raise LastAdminError


def _changed(before: Account, after: Account) -> Account:
    return before if after == before else replace(after, token_version=before.token_version + 1)
