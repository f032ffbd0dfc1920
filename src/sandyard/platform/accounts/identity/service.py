"""Logging in through an identity provider, by OpenID Connect. Each use case reads the clock once.

An account is found by the e-mail address that the provider has verified, or opened for it as a
sign-up would. Since the address is proven, errors may reveal the state of its account.
"""

from collections.abc import Sequence
from typing import Any

from sandyard.kit.changes.events import actor
from sandyard.kit.changes.transitions import Transition
from sandyard.kit.ids import resource_id
from sandyard.platform.access.login_tokens import Login
from sandyard.platform.accounts import errors
from sandyard.platform.accounts.context import AccountContext
from sandyard.platform.accounts.identity.model import Identity, LoginRequest, open_account
from sandyard.platform.accounts.model import Account, login_failed, login_succeeded
from sandyard.platform.accounts.ports import IdentityProvider
from sandyard.platform.entities.apply import apply_all
from sandyard.platform.projects.model import create_default_project

_BY = "logged in through the identity provider"
_OF_ADDRESS = 100


class IdentityLogins:
    def __init__(self, provider: IdentityProvider | None, context: AccountContext) -> None:
        """Without a provider each use case raises OidcNotConfiguredError."""
        self._configured = provider
        self._context = context
        self._store, self._signups = context.accounts, context.signups

    @property
    def _provider(self) -> IdentityProvider:
        if self._configured is None:
            raise errors.OidcNotConfiguredError
        return self._configured

    async def begin(self, *, address: str) -> tuple[LoginRequest, str]:
        """The request that the browser has to store, and the URL to send it to. RateLimitedError,
        OidcIssuerUnavailableError."""
        provider = self._provider
        await self._context.rate_limiter.hit("oidc_begin", address=address)
        request = LoginRequest(
            self._context.make.token(), self._context.make.token(), self._context.make.token()
        )
        return request, await provider.authorization_url(request)

    async def finish(
        self, *, code: str, nonce: str, code_verifier: str, address: str
    ) -> tuple[Account, Login]:
        """Log in with the code that the browser returned with. InvalidOidcLoginError,
        EmailNotVerifiedError, AccountInactiveError, SignupClosedError, InvitationRequiredError,
        RateLimitedError, OidcIssuerUnavailableError."""
        provider = self._provider
        await self._context.rate_limiter.hit("oidc_finish", address=address)
        identity = await provider.identify(code, nonce=nonce, code_verifier=code_verifier)
        account = await self._find_or_open(identity)
        cause = self._context.cause(actor("account", account.account_id)).because(_BY)
        if not account.is_active:
            refused = cause.because("the account is not active")
            failed = login_failed(account, refused, address=address)
            await self._store.apply(extra_events=[failed])
            raise errors.AccountInactiveError
        await self._context.login_limiter.remember(account.account_id, address=address)
        await self._store.touch_login(account.account_id, now=cause.at)
        succeeded = login_succeeded(account, cause, address=address)
        await self._store.apply(extra_events=[succeeded])
        return account, self._context.logins.issue(
            account_id=account.account_id, token_version=account.token_version, now=cause.at
        )

    async def _find_or_open(self, identity: Identity) -> Account:
        found: Account | None = None

        async def decide() -> Sequence[Transition[Any]]:
            nonlocal found
            found = await self._store.find_by_login(identity.email)
            return [] if found else await self._opened(identity)

        # AccountExistsError: just created by another login or a sign-up.
        made = await apply_all(self._signups, decide, retried=(errors.AccountExistsError,))
        opened: Account = found or made[0].result
        return opened

    async def _opened(self, identity: Identity) -> Sequence[Transition[Any]]:
        account_id = self._context.make.account_id()
        cause = self._context.cause(actor("account", account_id)).because(_BY)
        self._context.invitations.require(identity.email, None, now=cause.at)
        # Nobody knows this password; a reset mail to the address sets another.
        password_hash = await self._context.passwords.hash(self._context.make.token())
        account, ended = open_account(
            identity,
            await self._signups.find_of_address(identity.email, limit=_OF_ADDRESS),
            await self._signups.find_taken(email=identity.email, username=identity.username),
            account_id=account_id,
            password_hash=password_hash,
            cause=cause,
        )
        project = create_default_project(
            project_id=resource_id("prj"), account_id=account_id, cause=cause
        )
        return [account, project, *ended]
