"""An OpenID Connect identity provider: its metadata, codes and ID tokens."""

import asyncio
import base64
import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import quote, urlsplit

import httpx

from sandyard.kit.clock import Clock
from sandyard.kit.errors import UnauthorizedError
from sandyard.kit.issuer_tokens import IssuerTokens, JwksKeys
from sandyard.platform.accounts.errors import InvalidOidcLoginError, OidcIssuerUnavailableError
from sandyard.platform.accounts.identity.model import Identity, LoginRequest, identity_of

logger = logging.getLogger(__name__)

_DESCRIPTION = "/.well-known/openid-configuration"
_SCOPE = "openid email profile"
_FRESH_SEC = 3600.0
_AGAIN_SEC = 5.0
_TIMEOUT_SEC = 5.0
_LEEWAY_SEC = 30.0
_SERVER_ERROR = 500
_REFUSED_CODE = "invalid_grant"


@dataclass(frozen=True, slots=True)
class OidcClient:
    """Our registration with the issuer."""

    issuer: str
    client_id: str
    client_secret: Sequence[str] = field(repr=False)
    """The first one is sent."""
    redirect_uri: str


@dataclass(frozen=True, slots=True)
class _Endpoints:
    authorization: str
    token: str
    keys: str
    takes_basic: bool
    """Whether the secret is sent in the header, as RFC 6749 prefers, or in the body."""


class OidcProvider:
    """Its metadata and keys stay in use while it is unavailable."""

    def __init__(self, client: OidcClient, *, clock: Clock) -> None:
        self._client = client
        self._clock = clock
        self._endpoints: _Endpoints | None = None
        self._tokens: IssuerTokens | None = None
        self._keys_url = ""
        self._fetched_at = float("-inf")
        self._tried_at = float("-inf")
        self._lock = asyncio.Lock()

    async def authorization_url(self, request: LoginRequest) -> str:
        endpoints = await self._described()
        parameters = {
            "response_type": "code",
            "client_id": self._client.client_id,
            "redirect_uri": self._client.redirect_uri,
            "scope": _SCOPE,
            "state": request.state,
            "nonce": request.nonce,
            "code_challenge": request.code_challenge,
            "code_challenge_method": "S256",
        }
        return str(httpx.URL(endpoints.authorization).copy_merge_params(parameters))

    async def identify(self, code: str, *, nonce: str, code_verifier: str) -> Identity:
        endpoints = await self._described()
        id_token = await self._exchange(endpoints, code, code_verifier)
        try:
            claims = await self._tokens_of(endpoints).claims(id_token)
        except UnauthorizedError as error:
            raise InvalidOidcLoginError from error
        return identity_of(claims, client_id=self._client.client_id, nonce=nonce)

    async def _described(self) -> _Endpoints:
        async with self._lock:
            now = self._clock.now()
            is_old = now - self._fetched_at >= _FRESH_SEC
            if is_old and now - self._tried_at >= _AGAIN_SEC:
                await self._describe()
        if self._endpoints is None:
            raise OidcIssuerUnavailableError
        return self._endpoints

    async def _describe(self) -> None:
        self._tried_at = self._clock.now()
        try:
            async with httpx.AsyncClient(timeout=_TIMEOUT_SEC) as http:
                answer = await http.get(self._client.issuer.rstrip("/") + _DESCRIPTION)
                answer.raise_for_status()
                self._endpoints = _endpoints_of(answer.json(), self._client.issuer)
                self._fetched_at = self._tried_at
        except (httpx.HTTPError, ValueError) as error:
            logger.warning("the identity provider's metadata can't be fetched: %s", error)

    async def _exchange(self, endpoints: _Endpoints, code: str, code_verifier: str) -> str:
        """The ID token for a code. InvalidOidcLoginError if the issuer rejects the code."""
        sent = {
            "grant_type": "authorization_code",
            "code": code,
            "redirect_uri": self._client.redirect_uri,
            "code_verifier": code_verifier,
        }
        headers, own = self._authentication(endpoints)
        try:
            async with httpx.AsyncClient(timeout=_TIMEOUT_SEC) as http:
                answer = await http.post(endpoints.token, data=sent | own, headers=headers)
            body = _object(answer)
        except (httpx.HTTPError, ValueError) as error:
            logger.warning("the identity provider returned no token: %s", error)
            raise OidcIssuerUnavailableError from error
        if answer.is_success and isinstance(body.get("id_token"), str):
            return str(body["id_token"])
        if body.get("error") == _REFUSED_CODE:
            raise InvalidOidcLoginError
        # It does not know our secret or redirect URI; the user can do nothing about it.
        logger.warning(
            "the identity provider refused this server: %s", str(body.get("error"))[:100]
        )
        raise OidcIssuerUnavailableError

    def _authentication(self, endpoints: _Endpoints) -> tuple[dict[str, str], dict[str, str]]:
        name, secret = self._client.client_id, next(iter(self._client.client_secret), "")
        if not endpoints.takes_basic:
            return {}, {"client_id": name, "client_secret": secret}
        pair = f"{quote(name, safe='')}:{quote(secret, safe='')}".encode()
        return {"Authorization": f"Basic {base64.b64encode(pair).decode()}"}, {}

    def _tokens_of(self, endpoints: _Endpoints) -> IssuerTokens:
        if self._tokens is None or self._keys_url != endpoints.keys:
            self._keys_url = endpoints.keys
            self._tokens = IssuerTokens(
                JwksKeys(endpoints.keys, clock=self._clock, unavailable=OidcIssuerUnavailableError),
                issuer=self._client.issuer,
                clock=self._clock,
                leeway_sec=_LEEWAY_SEC,
            )
        return self._tokens


def _endpoints_of(document: Any, issuer: str) -> _Endpoints:
    """ValueError if the metadata is another issuer's, or has unsafe URLs."""
    if not isinstance(document, dict) or document.get("issuer") != issuer:
        raise ValueError("the metadata is not that of OIDC_ISSUER")
    names = ("authorization_endpoint", "token_endpoint", "jwks_uri")
    authorization, token, keys = (str(document.get(each, "")) for each in names)
    schemes = {"https", urlsplit(issuer).scheme}
    if not all(urlsplit(url).scheme in schemes for url in (authorization, token, keys)):
        raise ValueError("the metadata lacks a URL, or one is not https")
    methods = document.get("token_endpoint_auth_methods_supported") or ["client_secret_basic"]
    return _Endpoints(authorization, token, keys, "client_secret_basic" in methods)


def _object(answer: httpx.Response) -> Mapping[str, Any]:
    """ValueError if the answer is not a JSON object, or a server error."""
    if answer.status_code >= _SERVER_ERROR:
        raise ValueError(f"it returned {answer.status_code}")
    body = answer.json()
    if not isinstance(body, dict):
        raise ValueError("its response is not an object")  # noqa: TRY004 - as a malformed one is
    return body
