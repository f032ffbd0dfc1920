"""Accounts, and the decisions about them, without any I/O."""

import hashlib
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from decimal import Decimal
from enum import StrEnum
from typing import ClassVar

from sandyard.kit.changes.events import Event
from sandyard.kit.changes.transitions import (
    DATA,
    SECRET,
    Cause,
    Transition,
    changed,
    created,
    stateless_event,
)
from sandyard.kit.patterns import pattern
from sandyard.platform.access.principal import Role
from sandyard.platform.accounts import errors
from sandyard.platform.entities.model import FieldChanges, updated
from sandyard.platform.notifications.model import Notice, NotificationType

RESET_LIFETIME = timedelta(hours=1)
RESET_INTERVAL = timedelta(minutes=1)
"""Minimum time between two reset mails to one account, across all servers."""

_ATOM = r"[A-Za-z0-9!#$%&'*+/=?^_`{|}~-]+"
_LABEL = r"[A-Za-z0-9]([A-Za-z0-9-]{0,61}[A-Za-z0-9])?"
EMAIL = pattern(
    rf"^{_ATOM}(\.{_ATOM})*@({_LABEL}\.)+{_LABEL}$",
    "must be an e-mail address, such as ada@example.com",
)
"""Only an address: no display name, no quotes, no comments."""
USERNAME = pattern(r"^[A-Za-z0-9._-]+$", "must be letters, digits, ., _ and -")

PASSWORD_CHANGED = Notice(
    "Your password was changed",
    "All logins have ended. If it was not you, reset your password and check your API keys.",
    NotificationType.WARNING,
    related_entity_type="account",
)
_MILLIONTH = Decimal("0.000001")


class AccountSort(StrEnum):
    NEWEST = "-created_at"
    OLDEST = "created_at"
    EMAIL = "email"
    USERNAME = "username"


@dataclass(frozen=True, slots=True)
class Account:
    SUBJECT: ClassVar[str] = "account_id"
    OWNER: ClassVar[str | None] = "account_id"

    account_id: str
    email: str
    username: str
    password_hash: str = field(repr=False, metadata=SECRET)
    full_name: str | None
    role: Role
    is_active: bool
    is_verified: bool
    """Whether a token mailed to the address was returned, or an identity provider verified it."""
    token_version: int
    """A login is valid while it has this number."""
    spend_threshold: Decimal | None
    last_login: datetime | None = field(metadata=DATA)
    created_at: datetime
    updated_at: datetime
    reset_token: str | None = field(default=None, repr=False, metadata=SECRET)
    """As `hash_token` makes it."""
    verification_token: str | None = field(default=None, repr=False, metadata=SECRET)
    """Likewise, while the address is not verified and a mail was sent to it."""
    reset_token_expiry: datetime | None = None
    last_password_reset_request: datetime | None = None
    deleted_at: datetime | None = None
    sequence: int = 0

    @property
    def is_active_admin(self) -> bool:
        return self.is_active and self.role is Role.ADMIN


@dataclass(frozen=True, slots=True)
class OtherAdmins:
    """A fact: whether there are other active admins."""

    account_id: str
    exist: bool = False


@dataclass(frozen=True, slots=True)
class AccountFilter:
    search: str | None = None
    role: Role | None = None
    is_active: bool | None = None


def normalize_email(email: str) -> str:
    return email.lower()


def hash_token(token: str) -> str:
    """Tokens of mails are random enough for a plain hash."""
    return hashlib.sha256(token.encode()).hexdigest()


def create_account(
    *,
    account_id: str,
    email: str,
    username: str,
    full_name: str | None,
    password_hash: str,
    cause: Cause,
    role: Role = Role.USER,
    is_verified: bool = True,
) -> Transition[Account]:
    account = Account(
        account_id=account_id,
        email=normalize_email(email),
        username=username,
        password_hash=password_hash,
        full_name=full_name,
        role=role,
        is_active=True,
        is_verified=is_verified,
        token_version=0,
        spend_threshold=None,
        last_login=None,
        created_at=cause.at,
        updated_at=cause.at,
    )
    return created(account, "account.created", cause)


def update_profile(
    account: Account, changes: FieldChanges, cause: Cause
) -> Transition[Account] | None:
    after = replace(account, **changes)
    if after.spend_threshold is not None:  # always as it is read back
        after = replace(after, spend_threshold=after.spend_threshold.quantize(_MILLIONTH))
    return updated(account, after, "account.updated", cause)


def activate(account: Account, cause: Cause) -> Transition[Account] | None:
    return updated(account, replace(account, is_active=True), "account.activated", cause)


def deactivate(
    account: Account, others: OtherAdmins, *, by: str, cause: Cause
) -> Transition[Account] | None:
    """Ends the account's logins and keys at once. OwnAccountError if admins deactivate themselves,
    LastAdminError."""
    if account.account_id == by:
        raise errors.OwnAccountError
    if not account.is_active:
        return None
    after = replace(_without_logins(account), is_active=False)
    preconditions = _require_other_admin(account, others)
    return updated(account, after, "account.deactivated", cause, preconditions=preconditions)


def delete_account(account: Account, others: OtherAdmins, cause: Cause) -> Transition[Account]:
    """Permanently: logins and keys end at once, address and name are free again, and nothing here
    identifies the owner. LastAdminError."""
    after = replace(
        _without_logins(account),
        email=f"{account.account_id}@deleted.invalid",
        username=f"deleted:{account.account_id}",  # no sign-up can take it
        full_name=None,
        password_hash="",
        spend_threshold=None,
        reset_token=None,
        reset_token_expiry=None,
        verification_token=None,
        is_active=False,
        is_verified=False,
        deleted_at=cause.at,
        updated_at=cause.at,
    )
    preconditions = _require_other_admin(account, others)
    return changed(account, after, "account.deleted", cause, preconditions=preconditions)


def change_role(
    account: Account, role: Role, others: OtherAdmins, cause: Cause
) -> Transition[Account] | None:
    """Ends the account's logins, so that the next one has the new role. LastAdminError."""
    if account.role is role:
        return None
    after = replace(_without_logins(account), role=role)
    preconditions = _require_other_admin(account, others)
    return updated(account, after, "account.role_changed", cause, preconditions=preconditions)


def end_logins(account: Account, cause: Cause) -> Transition[Account] | None:
    """Invalidates all logins issued before; API keys stay valid."""
    return updated(account, _without_logins(account), "logins.ended", cause)


def change_password(account: Account, password_hash: str, cause: Cause) -> Transition[Account]:
    """Ends all logins and any reset."""
    after = _with_password(account, password_hash, cause)
    return changed(account, after, "password.changed", cause)


def request_reset(account: Account, token: str, cause: Cause) -> Transition[Account] | None:
    """Replaces any other token; None if the account is not active, or was sent one within
    `RESET_INTERVAL`."""
    last = account.last_password_reset_request
    if not account.is_active or (last is not None and cause.at < last + RESET_INTERVAL):
        return None
    after = replace(
        account,
        reset_token=hash_token(token),
        reset_token_expiry=cause.at + RESET_LIFETIME,
        last_password_reset_request=cause.at,
    )
    return changed(account, after, "password.reset_requested", cause)


def reset_password(
    account: Account, token: str, password_hash: str, cause: Cause
) -> Transition[Account]:
    """Like `change_password`, with the token of a mail, which also verifies the address;
    InvalidResetTokenError."""
    if (
        not account.is_active
        or account.reset_token != hash_token(token)
        or account.reset_token_expiry is None
        or account.reset_token_expiry <= cause.at
    ):
        raise errors.InvalidResetTokenError
    after = _with_verified_address(_with_password(account, password_hash, cause))
    return changed(account, after, "password.reset", cause)


def request_verification(account: Account, token: str, cause: Cause) -> Transition[Account] | None:
    """Replaces any other token; None if there is nothing to verify."""
    if account.is_verified or not account.is_active:
        return None
    after = replace(account, verification_token=hash_token(token))
    return changed(account, after, "account.verification_requested", cause)


def verify_address(account: Account, cause: Cause) -> Transition[Account] | None:
    """With the token of a mail, which is used up. None if the account is not active."""
    if not account.is_active:
        return None
    return updated(account, _with_verified_address(account), "account.verified", cause)


def rehash_password(account: Account, password_hash: str, cause: Cause) -> Transition[Account]:
    after = replace(account, password_hash=password_hash)
    return changed(account, after, "password.rehashed", cause)


def login_succeeded(account: Account, cause: Cause, *, address: str) -> Event:
    return _login(account, "login.succeeded", cause, address)


def login_failed(account: Account, cause: Cause, *, address: str) -> Event:
    return _login(account, "login.failed", cause, address)


def _login(account: Account, kind: str, cause: Cause, address: str) -> Event:
    return stateless_event(
        account.account_id,
        kind,
        cause,
        account_id=account.account_id,
        data={"address": address},
    )


def _with_password(account: Account, password_hash: str, cause: Cause) -> Account:
    return replace(
        _without_logins(account),
        password_hash=password_hash,
        reset_token=None,
        reset_token_expiry=None,
        updated_at=cause.at,
    )


def _with_verified_address(account: Account) -> Account:
    return replace(account, is_verified=True, verification_token=None)


def _without_logins(account: Account) -> Account:
    return replace(account, token_version=account.token_version + 1)


def _require_other_admin(account: Account, others: OtherAdmins) -> tuple[OtherAdmins, ...]:
    """LastAdminError if this is the only active admin; else the fact that there are others."""
    if not account.is_active_admin:
        return ()
    if not others.exist:
        raise errors.LastAdminError
    return (others,)
