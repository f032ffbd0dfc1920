"""What the accounts need of others. Every method of a store raises UnavailableError when its
engine is away."""

from collections.abc import Sequence
from datetime import datetime
from typing import Protocol

from sandyard.kit.paging import Page
from sandyard.platform.accounts.model import (
    Account,
    AccountFilter,
    AccountSort,
    Decide,
    PendingSignup,
    ProfileChanges,
    Taken,
)
from sandyard.platform.notifications.model import Notice


class SignupStore(Protocol):
    async def add_signup(self, signup: PendingSignup) -> Taken:
        """Keep the sign-up, and tell what of it is taken. It is kept in any case, so that the
        time this takes tells nothing; one of which something is taken can't be verified."""
        ...

    async def renew_signups(
        self, email: str, *, verification_tokens: Sequence[str], now: datetime, expires_at: datetime
    ) -> Sequence[PendingSignup]:
        """The newest sign-ups of this address whose time is not over, as many as there are tokens
        at most, each with one of them in place of its old one, in the tokens' order."""
        ...

    async def verify_signup(
        self, verification_token: str, *, account_id: str, project_id: str, now: datetime
    ) -> Account | None:
        """Make the account and its default project of the sign-up with this token, together or
        not at all; every sign-up of the address is used up by it.

        None if there is no such sign-up, its time is over, or its address or name is taken.
        Raises AccountExistsError if the account id is taken, or another caller was quicker.
        """
        ...

    async def remove_expired_signups(self, *, now: datetime) -> int:
        """How many there were."""
        ...


class AccountStore(Protocol):
    async def add_account(self, account: Account, *, project_id: str) -> None:
        """Add the account and its default project; AccountExistsError if something is taken."""
        ...

    async def find_account(self, account_id: str) -> Account | None: ...

    async def find_by_login(self, login: str) -> Account | None:
        """By e-mail address or user name, in capitals or not."""
        ...

    async def note_login(
        self, account_id: str, *, now: datetime, password_hash: str | None
    ) -> None:
        """Keep when it was, and the hash if it is given: the same password, hashed better."""
        ...

    async def set_reset_token(
        self, email: str, *, reset_token: str, now: datetime, expires_at: datetime
    ) -> Account | None:
        """Put the token in place of any other; None if there is no such active account."""
        ...

    async def reset_password(
        self, reset_token: str, *, password_hash: str, now: datetime, notice: Notice
    ) -> Account | None:
        """Set the password and end all logins, using the token up, and tell the account so;
        None if there is no such token or its time is over."""
        ...

    async def change_password(
        self, account_id: str, *, password_hash: str, now: datetime, notice: Notice
    ) -> None:
        """Set the password, end all logins and any reset, and tell the account so."""
        ...

    async def end_logins(self, account_id: str, *, now: datetime) -> None:
        """No login that was given out before holds any more; API keys do."""
        ...

    async def update_profile(
        self, account_id: str, changes: ProfileChanges, *, now: datetime
    ) -> Account: ...

    async def page_of_accounts(
        self, only: AccountFilter, *, sort: AccountSort, limit: int, cursor: str | None
    ) -> Page[Account]: ...

    async def decide(self, account_id: str, decide: Decide, *, now: datetime) -> Account | None:
        """Apply a decision about role and activity while nobody else makes one; None if there is
        no such account."""
        ...


class Attempts(Protocol):
    """How often somebody may try."""

    async def count(self, action: str, *, account: str | None = None, address: str) -> None:
        """Count one attempt, by the account that is meant and the address that it comes from;
        RateLimitedError with `retry_after` if it is one too many."""
        ...

    async def forgive(self, action: str, *, account: str) -> None:
        """Forget the attempts on this account, after one that was right."""
        ...


class Passwords(Protocol):
    async def hash(self, password: str) -> str: ...

    async def verify(self, password: str, password_hash: str) -> bool: ...

    def is_outdated(self, password_hash: str) -> bool:
        """Whether the hash was made at another cost than a new one would be."""
        ...
