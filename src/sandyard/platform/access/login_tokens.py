"""Logins: signed tokens, valid until they expire or their account's `token_version` is raised."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from sandyard.kit.clock import utc_time
from sandyard.kit.wired import wired

_ALGORITHM = "HS256"
_ISSUER = "sandyard"


@dataclass(frozen=True, slots=True)
class Login:
    access_token: str
    expires_at: datetime


@dataclass(frozen=True, slots=True)
class LoginClaim:
    """The claims of a token that we signed. The store decides whether it is still valid."""

    account_id: str
    token_version: int
    expires_at: datetime
    """When the login expires that it is, or that it was made with."""
    key_id: str | None = None
    """The API key that it was made with."""


@wired
class Logins:
    """Signs with the first secret and accepts tokens of each, so that secrets can be rotated."""

    secrets: Sequence[str]
    lifetime: timedelta
    issuer: str = _ISSUER
    """Tokens of one issuer are invalid for others."""

    def issue(
        self,
        *,
        account_id: str,
        token_version: int,
        now: datetime,
        key_id: str | None = None,
        until: datetime | None = None,
    ) -> Login:
        """`key_id` and `until` belong to the credential that requests it, if there is one: the
        token does not outlive it."""
        import jwt

        expires_at = (now + self.lifetime).replace(microsecond=0)
        claims: dict[str, str | int] = {
            "iss": self.issuer,
            "sub": account_id,
            "ver": token_version,
            "iat": int(now.timestamp()),
            "exp": int(expires_at.timestamp()),
        }
        if key_id is not None:
            claims["key"] = key_id
        if until is not None:
            claims["until"] = int(until.timestamp())
        return Login(jwt.encode(claims, self.secrets[0], algorithm=_ALGORITHM), expires_at)

    def read(self, token: str, *, now: datetime) -> LoginClaim | None:
        """The token's claims; None if we did not sign it or it has expired."""
        import jwt

        for secret in self.secrets:
            try:
                claims = jwt.decode(
                    token,
                    secret,
                    algorithms=[_ALGORITHM],
                    issuer=self.issuer,
                    options={
                        "require": ["sub", "ver", "exp"],
                        "verify_exp": False,  # checked below, by our clock
                        "verify_iat": False,
                    },
                )
            except jwt.InvalidTokenError:
                continue
            if _is_later(claims["exp"], now):
                expires_at = utc_time(claims.get("until", claims["exp"]))
                return LoginClaim(claims["sub"], claims["ver"], expires_at, claims.get("key"))
        return None


def _is_later(expires_at: object, now: datetime) -> bool:
    try:
        return isinstance(expires_at, int) and now < utc_time(expires_at)
    except (OverflowError, ValueError, OSError):  # not a valid time
        return False
