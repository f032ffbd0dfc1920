"""Access tokens for the owners of sandboxes and projects."""

from collections.abc import Collection, Mapping
from dataclasses import KW_ONLY, dataclass
from datetime import timedelta
from typing import Protocol

from sandyard.gateway.errors import TargetUnknownError
from sandyard.gateway.model import Grant, PageScope, SandboxDomain
from sandyard.gateway.ports import CredentialLookup, OwnedTargets
from sandyard.gateway.tokens import AccessTokens
from sandyard.kit.clock import Clock, utc_time


@dataclass(frozen=True, slots=True)
class IssuedToken:
    token: str
    grant: Grant
    url: str | None
    """The URL it opens; None if it opens nothing."""


class Issuer(Protocol):
    """The credential that requests a token."""

    @property
    def account_id(self) -> str: ...

    @property
    def key_id(self) -> str | None:
        """None with a login."""


@dataclass(slots=True, eq=False)
class TokenIssue:
    """`targets` are keyed by the prefix of their ids."""

    targets: Mapping[str, OwnedTargets]
    credentials: CredentialLookup
    tokens: AccessTokens
    domain: SandboxDomain
    _: KW_ONLY
    clock: Clock

    async def issue(
        self,
        target_id: str,
        *,
        by: Issuer,
        scopes: Collection[PageScope],
        lasts: timedelta,
        port: int | None = None,
    ) -> IssuedToken:
        """A token for one of the caller's own targets; else TargetUnknownError. It also ends with
        the account's logins, and with the key that requested it."""
        kind = target_id.partition("-")[0]
        owned = self.targets.get(kind)
        if owned is None or not await owned.is_owned(target_id, account_id=by.account_id):
            raise TargetUnknownError
        account = await self.credentials.find_account(by.account_id)
        if account is None:
            raise TargetUnknownError
        grant = Grant(
            target_id=target_id,
            account_id=by.account_id,
            token_version=account.token_version,
            scopes=frozenset(scopes),
            expires_at=(utc_time(self.clock.now()) + lasts).replace(microsecond=0),
            port=port,
            key_id=by.key_id,
        )
        opened = port or await owned.program_port(target_id)
        url = None
        if opened is not None and PageScope.VIEW in grant.scopes:
            url = self.domain.url_of(target_id, opened)
        return IssuedToken(self.tokens.issue(grant), grant, url)
