"""Sign-ups, and the decisions about them, without any I/O."""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from typing import ClassVar

from sandyard.kit.changes.transitions import SECRET, Cause, Transition, changed, created, removed
from sandyard.platform.accounts.errors import InvalidVerificationTokenError
from sandyard.platform.accounts.model import Account, create_account, hash_token, normalize_email

VERIFICATION_LIFETIME = timedelta(hours=24)


@dataclass(frozen=True, slots=True)
class PendingSignup:
    """An account that waits for its address to be verified."""

    SUBJECT: ClassVar[str] = "signup_id"
    OWNER: ClassVar[str | None] = None

    signup_id: str
    email: str
    username: str
    full_name: str | None
    verification_token: str = field(repr=False, metadata=SECRET)
    """As `hash_token` makes it."""
    password_hash: str = field(repr=False, metadata=SECRET)
    created_at: datetime
    expires_at: datetime
    sequence: int = 0


@dataclass(frozen=True, slots=True)
class Taken:
    """Which parts of a sign-up another account already has."""

    email: bool
    username: bool

    @property
    def is_any(self) -> bool:
        return self.email or self.username


def create_signup(
    *,
    signup_id: str,
    email: str,
    username: str,
    full_name: str | None,
    token: str,
    password_hash: str,
    cause: Cause,
) -> Transition[PendingSignup]:
    signup = PendingSignup(
        signup_id=signup_id,
        email=normalize_email(email),
        username=username,
        full_name=full_name,
        verification_token=hash_token(token),
        password_hash=password_hash,
        created_at=cause.at,
        expires_at=cause.at + VERIFICATION_LIFETIME,
    )
    return created(signup, "signup.created", cause)


def renew_signup(
    signup: PendingSignup, taken: Taken, *, token: str, cause: Cause
) -> Transition[PendingSignup] | None:
    """Replace its token; None if it can't be verified any more."""
    if signup.expires_at <= cause.at or taken.is_any:
        return None
    renewed = replace(
        signup,
        verification_token=hash_token(token),
        expires_at=cause.at + VERIFICATION_LIFETIME,
    )
    return changed(signup, renewed, "signup.renewed", cause)


def verify_signup(
    signup: PendingSignup,
    of_address: Sequence[PendingSignup],
    taken: Taken,
    *,
    account_id: str,
    cause: Cause,
) -> tuple[Transition[Account], Sequence[Transition[PendingSignup]]]:
    """The account, and the end of this and all other sign-ups of its address;
    InvalidVerificationTokenError."""
    if signup.expires_at <= cause.at or taken.is_any:
        raise InvalidVerificationTokenError
    account = create_account(
        account_id=account_id,
        email=signup.email,
        username=signup.username,
        full_name=signup.full_name,
        password_hash=signup.password_hash,
        cause=cause,
    )
    others = [each for each in of_address if each.signup_id != signup.signup_id]
    used_up = cause.because("its address was verified by another sign-up")
    ended = [removed(each, "signup.expired", used_up) for each in others]
    return account, [removed(signup, "signup.verified", cause), *ended]


def expire_signup(signup: PendingSignup, cause: Cause) -> Transition[PendingSignup] | None:
    return removed(signup, "signup.expired", cause) if signup.expires_at <= cause.at else None
