"""OAuth2 access tokens: verifies JWTs of one issuer, and maps their scopes."""

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from sandyard.broker.clients.errors import IssuerUnavailableError
from sandyard.broker.clients.model import Caller, ClientScope, with_included
from sandyard.kit.clock import Clock
from sandyard.kit.errors import UnauthorizedError
from sandyard.kit.issuer_tokens import IssuerTokens, JwksKeys

_BELIEVED_SEC = 15.0
_MOST_KEPT = 1000


@dataclass(frozen=True, slots=True)
class Issuer:
    jwks_url: str
    issuer: str
    audience: Sequence[str]
    """A token must be for one of these: in `aud`, or in `client_id` where it has no `aud`."""
    scope_prefix: str = ""
    """The issuer's prefix for our scopes."""
    leeway_sec: float = 30


class OAuthTokens:
    """Callers by access token; a verified token is cached for a few seconds."""

    def __init__(self, issuer: Issuer, *, clock: Clock) -> None:
        self._issuer = issuer
        self._clock = clock
        self._tokens = IssuerTokens(
            JwksKeys(issuer.jwks_url, clock=clock, unavailable=IssuerUnavailableError),
            issuer=issuer.issuer,
            clock=clock,
            leeway_sec=issuer.leeway_sec,
        )
        self._known: dict[bytes, tuple[Caller, float]] = {}

    async def caller(self, token: str) -> Caller:
        seen = hashlib.sha256(token.encode()).digest()
        known = self._known.get(seen)
        if known is not None and self._clock.now() < known[1]:
            return known[0]
        claims = await self._check(token)
        caller = self._caller_of(claims)
        if len(self._known) >= _MOST_KEPT:
            self._known.clear()
        ends = claims["exp"] + self._issuer.leeway_sec
        self._known[seen] = caller, min(ends, self._clock.now() + _BELIEVED_SEC)
        return caller

    async def _check(self, token: str) -> Mapping[str, Any]:
        claims = await self._tokens.claims(token)
        if not self._is_for_us(claims) or claims.get("token_use", "access") != "access":
            raise UnauthorizedError  # Cognito's ID tokens are signed with the same keys
        return claims

    def _is_for_us(self, claims: Mapping[str, Any]) -> bool:
        """Cognito's access tokens have no `aud`, but the id of the client that they were issued
        to."""
        named = claims.get("aud", claims.get("client_id"))
        audience = named if isinstance(named, list) else [named]
        return any(each in self._issuer.audience for each in audience if isinstance(each, str))

    def _caller_of(self, claims: Mapping[str, Any]) -> Caller:
        """Scopes are one string (RFC 8693); some issuers send a list in `scp` instead."""
        sent = claims.get("scope", claims.get("scp", ""))
        names = sent if isinstance(sent, list) else str(sent).split()
        prefix = self._issuer.scope_prefix
        ours = [str(each).removeprefix(prefix) for each in names if str(each).startswith(prefix)]
        scopes = [ClientScope(each) for each in ours if each in set(ClientScope)]
        who = claims.get("client_id") or claims.get("azp") or claims.get("sub") or "unknown"
        return Caller(f"oauth:{who}"[:120], with_included(scopes))
