"""Access tokens: signed, for one sandbox or project, and short-lived."""

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any, Literal

from sandyard.gateway.model import Grant, PageScope, TargetHost
from sandyard.kit.clock import utc_time

PREFIX = "sat-"
"""The prefix of every token, so that it can be recognized and not forwarded."""

_ALGORITHM = "HS256"
_Use = Literal["token", "cookie"]


class AccessTokens:
    """Signs with the first secret and accepts tokens of each, so that secrets can be rotated.

    A token opens its target, in a link or a header. A cookie opens one host, and is never accepted
    as a token.
    """

    def __init__(self, secrets: Sequence[str]) -> None:
        self._secrets = secrets

    def issue(self, grant: Grant) -> str:
        return self._sign(grant, "token", grant.port)

    def issue_cookie(self, grant: Grant, host: TargetHost) -> str:
        """For this host only, for as long as the grant lasts."""
        return self._sign(grant, "cookie", host.port)

    def read(self, token: str, *, now: datetime) -> Grant | None:
        """None if we did not sign it, or it has expired."""
        return self._read(token, "token", now)

    def read_cookie(self, token: str, *, now: datetime) -> Grant | None:
        return self._read(token, "cookie", now)

    def _sign(self, grant: Grant, use: _Use, port: int | None) -> str:
        import jwt

        claims = {
            "aud": use,
            "sub": grant.target_id,
            "acc": grant.account_id,
            "ver": grant.token_version,
            "scp": sorted(grant.scopes),
            "exp": int(grant.expires_at.timestamp()),
            "prt": port,
            "key": grant.key_id,
        }
        return PREFIX + jwt.encode(claims, self._secrets[0], algorithm=_ALGORITHM)

    def _read(self, token: str, use: _Use, now: datetime) -> Grant | None:
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
