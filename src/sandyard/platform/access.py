"""The guard at every door of the Platform: a login or an API key, checked anew on each request.

What is taken away (a login, a key, a role, the whole account) is gone with the next request,
because standing is read from the store each time, by one statement, and never kept.
"""

import re
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, Protocol

from starlette.requests import Request

from sandyard.kit.clock import Clock, utc_time
from sandyard.kit.errors import ForbiddenError, UnauthorizedError
from sandyard.kit.http import ACCOUNT_KEY, values_of
from sandyard.platform.api_keys.model import hash_api_key
from sandyard.platform.logins import Logins
from sandyard.platform.principal import Principal, Role

LOGIN = "Login"
"""The name of the scheme in the API's document."""
OPENED_BY_ACCOUNTS: dict[str, Any] = {"security": [{LOGIN: []}, {ACCOUNT_KEY: []}]}
"""Describes a door that a login or an API key opens, for `openapi_extra`."""

LAST_USED_EVERY = timedelta(minutes=5)

_API_KEY = re.compile(r"sbk-[a-z0-9]{40}\Z")


class LoginRequiredError(UnauthorizedError):
    """No valid credential. Log in, or send an API key: `Authorization: Bearer …`, once."""

    code = "LOGIN_REQUIRED"


class AdminsOnlyError(ForbiddenError):
    """Only admins may do this. Ask one of them."""

    code = "ADMINS_ONLY"


@dataclass(frozen=True, slots=True)
class Standing:
    """What an account may do at this moment."""

    account_id: str
    role: Role
    is_active: bool
    token_version: int


@dataclass(frozen=True, slots=True)
class KeyStanding:
    account: Standing
    key_id: str
    is_active: bool
    last_used_at: datetime | None


class Standings(Protocol):
    """Who may come in, as last written, never as it was a moment ago."""

    async def find_account(self, account_id: str) -> Standing | None: ...

    async def find_key(self, key_hash: str) -> KeyStanding | None:
        """The key and its account, in one statement; None if there is none, or it was deleted."""
        ...

    async def touch_key(self, key_id: str, *, now: datetime, unless_after: datetime) -> None:
        """Note that the key was used at `now`, unless a use after the other time is noted."""
        ...


class AccessGuard:
    """Its methods are dependencies of FastAPI: `Annotated[Principal, Depends(guard.account)]`."""

    def __init__(self, standings: Standings, logins: Logins, *, clock: Clock) -> None:
        self._standings = standings
        self._logins = logins
        self._clock = clock

    async def account(self, request: Request) -> Principal:
        """The account that the request comes from; LoginRequiredError if it does not say."""
        credential = _credential(request)
        now = utc_time(self._clock.now())
        if _API_KEY.match(credential):
            principal = await self._by_key(credential, now)
        else:
            principal = await self._by_login(credential, now)
        request.state.log = {"account_id": principal.account_id, "key_id": principal.key_id}
        return principal

    async def admin(self, request: Request) -> Principal:
        principal = await self.account(request)
        if not principal.is_admin:
            raise AdminsOnlyError
        return principal

    async def _by_login(self, token: str, now: datetime) -> Principal:
        claim = self._logins.read(token, now=now)
        standing = await self._standings.find_account(claim.account_id) if claim else None
        if (
            claim is None
            or standing is None
            or not standing.is_active
            or claim.token_version != standing.token_version
        ):
            raise LoginRequiredError
        return Principal(standing.account_id, standing.role)

    async def _by_key(self, api_key: str, now: datetime) -> Principal:
        key = await self._standings.find_key(hash_api_key(api_key))
        if key is None or not key.is_active or not key.account.is_active:
            raise LoginRequiredError
        due = now - LAST_USED_EVERY
        if key.last_used_at is None or key.last_used_at <= due:
            await self._standings.touch_key(key.key_id, now=now, unless_after=due)
        return Principal(key.account.account_id, key.account.role, key.key_id)


def _credential(request: Request) -> str:
    """The one credential of the request; two that might differ are none."""
    headers = request.scope["headers"]
    bearers, keys = values_of(headers, b"authorization"), values_of(headers, b"x-api-key")
    if len(bearers) + len(keys) != 1:
        raise LoginRequiredError
    if keys:
        if not _API_KEY.match(key := keys[0].decode("latin-1")):
            raise LoginRequiredError
        return key
    scheme, _, token = bearers[0].decode("latin-1").partition(" ")
    if scheme.lower() != "bearer" or not token.strip():
        raise LoginRequiredError
    return token.strip()
