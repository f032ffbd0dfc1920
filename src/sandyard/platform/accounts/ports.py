"""The ports of accounts. Every method of a store raises UnavailableError if its engine is
unavailable."""

from collections.abc import Callable, Collection, Sequence
from collections.abc import Set as AbstractSet
from datetime import datetime
from typing import Protocol

from sandyard.kit.paging import Page
from sandyard.platform.accounts.identity.model import Identity, LoginRequest
from sandyard.platform.accounts.logins.model import Counts, LoginAttempt
from sandyard.platform.accounts.model import Account, AccountFilter
from sandyard.platform.accounts.signups.model import PendingSignup, Taken
from sandyard.platform.entities.apply import TransitionStore
from sandyard.platform.entities.model import Listing


class SignupStore(TransitionStore, Protocol):
    """`apply` raises AccountExistsError if an account's id, address or name is taken."""

    async def find_taken(self, *, email: str, username: str) -> Taken: ...

    async def find_by_token(self, verification_token: str) -> PendingSignup | None:
        """By the token's hash."""

    async def find_of_address(self, email: str, *, limit: int) -> Sequence[PendingSignup]:
        """The newest first."""

    async def find_expired(self, *, now: datetime, limit: int) -> Sequence[PendingSignup]: ...


class AccountStore(TransitionStore, Protocol):
    """What `apply` changes takes effect with the next request. It raises AccountExistsError."""

    async def find_account(self, account_id: str) -> Account | None: ...

    async def find_by_login(self, login: str) -> Account | None:
        """By e-mail address or user name, case-insensitive."""

    async def find_by_verification_token(self, verification_token: str) -> Account | None:
        """By the token's hash."""

    async def find_by_reset_token(self, reset_token: str) -> Account | None:
        """By the token's hash."""

    async def deactivated_accounts(self, account_ids: Collection[str]) -> AbstractSet[str]: ...

    async def page_of_accounts(self, listing: Listing[AccountFilter]) -> Page[Account]: ...

    async def touch_login(self, account_id: str, *, now: datetime) -> None:
        """Record the time of the last login."""


class LoginAttempts(Protocol):
    """Failed logins, counted for all replicas together, and the known networks of accounts. Not an
    entity, so it has no events."""

    async def is_known(self, account_id: str, network: str, *, now: datetime) -> bool:
        """Whether the account has logged in from this network."""

    async def change(self, attempt: LoginAttempt, decide: Callable[[Counts], Counts]) -> Counts:
        """Write and return the decided counts of the attempt; attempts that share a key are decided
        one at a time. Nothing is written if `decide` raises."""

    async def remember(self, account_id: str, network: str, *, now: datetime) -> None:
        """Record that the account has logged in from this network."""

    async def prune(self, *, now: datetime) -> int:
        """Remove expired counts; returns the number of rows."""


class IdentityProvider(Protocol):
    """Every method raises OidcIssuerUnavailableError if the provider is unavailable."""

    async def authorization_url(self, request: LoginRequest) -> str:
        """The URL at which a browser logs in there; it returns with a code."""

    async def identify(self, code: str, *, nonce: str, code_verifier: str) -> Identity:
        """The identity behind the code. InvalidOidcLoginError if it is invalid, was used, or is for
        another login; EmailNotVerifiedError."""


class RateLimiter(Protocol):
    """Limits how often an action may be tried, per target account and per address."""

    async def hit(self, action: str, *, account: str | None = None, address: str) -> None:
        """Count one try; RateLimitedError with `retry_after` if it is over the limit, and then it
        does not count."""

    async def reset(self, action: str, *, account: str) -> None:
        """Reset the count of this account, after a success."""


class Passwords(Protocol):
    async def hash(self, password: str) -> str: ...

    async def verify(self, password: str, password_hash: str) -> bool: ...

    def is_outdated(self, password_hash: str) -> bool:
        """Whether the hash was made with other costs than a new one would be."""
