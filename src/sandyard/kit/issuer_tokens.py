"""JWTs of one issuer, verified with its published keys.

Only asymmetric algorithms are accepted, so that a public key can't be passed off as a shared
secret. Keys stay in use while the issuer is unavailable. Fetches for unknown key ids are
rate-limited, so that forged tokens can't make us call the issuer each time.
"""

import asyncio
import logging
from collections.abc import Mapping
from typing import Any

import httpx
import jwt

from sandyard.kit.clock import Clock
from sandyard.kit.errors import UnauthorizedError, UnavailableError

logger = logging.getLogger(__name__)

ALGORITHMS = ("RS256", "RS384", "RS512", "PS256", "PS384", "PS512", "ES256", "ES384", "EdDSA")
_LONGEST = 8192
_FRESH_SEC = 3600.0
_AGAIN_SEC = 30.0
_TIMEOUT_SEC = 5.0


class JwksKeys:
    """The issuer's keys by their ids."""

    def __init__(
        self, url: str, *, clock: Clock, unavailable: type[UnavailableError] = UnavailableError
    ) -> None:
        """`unavailable` is raised while the keys can't be fetched."""
        self.url = url
        self._clock = clock
        self._unavailable = unavailable
        self._keys: Mapping[str, jwt.PyJWK] = {}
        self._fetched_at = float("-inf")
        self._tried_at = float("-inf")
        self._is_away = False
        self._lock = asyncio.Lock()

    async def find(self, key_id: str) -> jwt.PyJWK | None:
        """None if the issuer has no such key; raises `unavailable` if that can't be determined."""
        is_old = self._clock.now() - self._fetched_at >= _FRESH_SEC
        if key_id not in self._keys or (is_old and not self._lock.locked()):
            async with self._lock:  # concurrent callers wait for the same fetch
                if self._clock.now() - self._tried_at >= _AGAIN_SEC:
                    await self._fetch()
        if key_id not in self._keys and self._is_away:
            raise self._unavailable
        return self._keys.get(key_id)

    async def _fetch(self) -> None:
        self._tried_at = self._clock.now()
        try:
            async with httpx.AsyncClient(timeout=_TIMEOUT_SEC) as client:
                answer = await client.get(self.url)
                answer.raise_for_status()
                found = _keys_of(answer.json())
        except (httpx.HTTPError, ValueError, jwt.PyJWTError) as error:
            self._is_away = True
            logger.warning("the keys of access tokens can't be fetched: %s", error)
        else:
            self._keys, self._is_away = found, False
            self._fetched_at = self._tried_at


def _keys_of(document: Any) -> Mapping[str, jwt.PyJWK]:
    """Those that can verify signatures; others in the set are ignored."""
    if not isinstance(document, dict) or not isinstance(document.get("keys"), list):
        raise jwt.PyJWKSetError("the response is not a set of keys")
    found: dict[str, jwt.PyJWK] = {}
    for each in document["keys"]:
        try:
            key = jwt.PyJWK.from_dict(each)
        except (jwt.PyJWTError, AttributeError, LookupError, TypeError, ValueError):
            continue
        if key.key_id and key.key_type in ("RSA", "EC", "OKP") and each.get("use", "sig") == "sig":
            found[key.key_id] = key
    return found


class IssuerTokens:
    """Returns the claims of a token that the issuer signed and that is valid now; the caller checks
    its audience and purpose."""

    def __init__(self, keys: JwksKeys, *, issuer: str, clock: Clock, leeway_sec: float) -> None:
        self._keys = keys
        self._issuer = issuer
        self._clock = clock
        self._leeway_sec = leeway_sec

    async def claims(self, token: str) -> dict[str, Any]:
        """Raises UnauthorizedError, or the keys' `unavailable` while they can't be fetched."""
        if len(token) > _LONGEST:
            raise UnauthorizedError
        try:
            header = jwt.get_unverified_header(token)
        except jwt.PyJWTError as error:
            raise UnauthorizedError from error
        algorithm, key_id = header.get("alg"), header.get("kid")
        if algorithm not in ALGORITHMS or not isinstance(key_id, str):
            raise UnauthorizedError
        key = await self._keys.find(key_id)
        if key is None:
            raise UnauthorizedError
        return self._decode(token, key, str(algorithm))

    def _decode(self, token: str, key: jwt.PyJWK, algorithm: str) -> dict[str, Any]:
        """Verify signature and times, by our own clock, like everything else."""
        try:
            claims: dict[str, Any] = jwt.decode(
                token,
                key,
                algorithms=[algorithm],
                issuer=self._issuer,
                options={
                    "require": ["exp", "iss"],
                    "verify_aud": False,
                    "verify_exp": False,
                    "verify_nbf": False,
                    "verify_iat": False,
                },
            )
        except (jwt.PyJWTError, ValueError, TypeError) as error:
            raise UnauthorizedError from error
        if not self._is_timely(claims):
            raise UnauthorizedError
        return claims

    def _is_timely(self, claims: Mapping[str, Any]) -> bool:
        now, leeway = self._clock.now(), self._leeway_sec
        ends, begins = claims["exp"], claims.get("nbf", 0)
        if not _is_number(ends) or not _is_number(begins):
            return False
        return bool(begins - leeway <= now < ends + leeway)


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)
