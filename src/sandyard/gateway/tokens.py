"""Access tokens: signed, for one sandbox or project, short-lived, and issued to its owner."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass
from datetime import datetime, timedelta
from typing import Any, Literal, Protocol

from sandyard.gateway.errors import TargetUnknownError
from sandyard.gateway.model import Grant, PageScope, SandboxDomain, TargetHost
from sandyard.gateway.ports import CredentialLookup, OwnedTargets
from sandyard.kit.clock import Clock, utc_time

PREFIX = "sat-"
"""The prefix of every token, so that it can be recognized and not forwarded."""
_ALGORITHM = "HS256"


class AccessTokens:
    """Signs with the first secret and accepts tokens of each, so that secrets can be rotated.

    A token opens its target, in a link or a header. A cookie opens one host, and is never accepted
    as a token.
    """

    def __init__(self, secrets: Sequence[str]) -> None:
        self._secrets = secrets

    def issue(self, grant: Grant, *, cookie_of: TargetHost | None = None) -> str:
        """A token; or the cookie of this host, for as long as the grant lasts."""
        import jwt

        claims = {
            "aud": "token" if cookie_of is None else "cookie",
            "sub": grant.target_id,
            "acc": grant.account_id,
            "ver": grant.token_version,
            "scp": sorted(grant.scopes),
            "exp": int(grant.expires_at.timestamp()),
            "prt": grant.port if cookie_of is None else cookie_of.port,
            "key": grant.key_id,
        }
        return PREFIX + jwt.encode(claims, self._secrets[0], algorithm=_ALGORITHM)

    def read(
        self, token: str, *, now: datetime, use: Literal["token", "cookie"] = "token"
    ) -> Grant | None:
        """None if we did not sign it for this use, or it has expired."""
        import jwt

        if not token.startswith(PREFIX):
            return None
        for secret in self._secrets:
            try:
                claims = jwt.decode(
                    token.removeprefix(PREFIX),
                    secret,
                    algorithms=[_ALGORITHM],
                    audience=use,
                    options={"require": ["sub", "exp"], "verify_exp": False},  # our own clock
                )
            except jwt.InvalidTokenError:
                continue
            grant = _grant(claims)
            return grant if grant is not None and now < grant.expires_at else None
        return None


def _grant(claims: Mapping[str, Any]) -> Grant | None:
    """None if it has an invalid time, an unknown scope, or lacks a claim."""
    try:
        return Grant(
            target_id=claims["sub"],
            account_id=claims["acc"],
            token_version=claims["ver"],
            scopes=frozenset(PageScope(each) for each in claims["scp"]),
            expires_at=utc_time(claims["exp"]),
            port=claims["prt"],
            key_id=claims.get("key"),
        )
    except (KeyError, TypeError, ValueError, OverflowError, OSError):
        return None


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
