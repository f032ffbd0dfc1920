"""The guard of every endpoint of the Platform: a login or an API key, checked on each request.

A revocation (of a login, a key, a role, the whole account) takes effect with the next request,
because credentials are read from the store each time, by one statement, and never cached.
"""

import asyncio
import re
from datetime import timedelta
from functools import partial
from typing import TYPE_CHECKING

from starlette.requests import Request

from sandyard.kit.clock import Clock, utc_time
from sandyard.kit.concurrency.streams import StreamLimit
from sandyard.kit.errors import ForbiddenError, RateLimitedError, UnauthorizedError
from sandyard.kit.http.access_watch import watch_access
from sandyard.kit.http.idempotency import IdempotentCalls
from sandyard.kit.http.security import SecurityScheme, find_credential, secured_by
from sandyard.kit.idempotency import HEADER
from sandyard.kit.wired import wired
from sandyard.platform.access.credentials import CredentialLookup, KeyCredential, hash_api_key
from sandyard.platform.access.login_tokens import Login, Logins
from sandyard.platform.access.principal import Principal, Scope

if TYPE_CHECKING:  # imported where it is used: it takes a fifth of a second
    from sandyard.kit.rate_limit import RateLimit

LOGIN = SecurityScheme(
    "Login",
    "The `access_token` that `POST /api/v1/auth/login` returns, or an API key (`sbk-…`).",
)
ACCOUNT_KEY = SecurityScheme(
    "AccountKey",
    "The `api_key` that `POST /api/v1/api-keys` returns.",
    header="X-API-Key",
)
ACCOUNT_SECURITY = secured_by(LOGIN, ACCOUNT_KEY)
"""The security requirement of account-guarded endpoints, for `openapi_extra`."""

_READING = frozenset({"GET", "HEAD"})
LAST_USED_EVERY = timedelta(minutes=5)

_API_KEY = re.compile(r"(sbk-[a-z0-9]{40}|e2b_[0-9a-f]{40})\Z")


class LoginRequiredError(UnauthorizedError):
    """No valid credential was sent. Log in, or send an API key: `Authorization: Bearer …`, once."""


class ScopeMissingError(ForbiddenError):
    """This API key's scope does not allow this. Use a key with a wider scope, or log in."""


class AdminsOnlyError(ForbiddenError):
    """Only admins may do this. Ask one of them."""


class RequestRate:
    """Limits the requests of each account, those that change something, or what else they cost."""

    def __init__(self, rate: str, storage_url: str, *, name: str = "requests") -> None:
        self._name = name
        self._rate = rate
        self._storage_url = storage_url
        self._limit: RateLimit | None = None

    async def count(self, account_id: str, cost: int = 1) -> None:
        """Count a request; RateLimitedError if it is over the limit."""
        if self._limit is None:
            made = await asyncio.to_thread(self._make)
            self._limit = self._limit or made
        wait = await self._limit.wait_for(account_id, cost)
        if wait is not None:
            raise RateLimitedError(retry_after=wait)

    def _make(self) -> "RateLimit":
        from sandyard.kit.rate_limit import RateLimit

        return RateLimit(self._rate, self._storage_url, name=self._name, is_sliding=False)


@wired
class AccessGuard:
    """Its methods are the checks of guarded routes."""

    credentials: CredentialLookup
    logins: Logins
    requests: RequestRate
    writes: RequestRate
    clock: Clock
    streams: StreamLimit
    """Those of each account."""
    idempotency: IdempotentCalls

    async def account(self, request: Request) -> Principal:
        """The account of the request; an API key needs the scope `read` to read, `admin` to change
        anything."""
        scope = Scope.READ if request.method in _READING else Scope.ADMIN
        return await self.require(request, scope)

    async def runner(self, request: Request) -> Principal:
        """For sandboxes and previews: the scope `run` is enough to change them."""
        scope = Scope.READ if request.method in _READING else Scope.RUN
        return await self.require(request, scope)

    async def inside(self, request: Request) -> Principal:
        """The same for calls about what is inside a running sandbox, which write nothing here but
        the record of an `Idempotency-Key`."""
        scope = Scope.READ if request.method in _READING else Scope.RUN
        return await self.require(request, scope, is_write=HEADER in request.headers)

    async def require(
        self, request: Request, scope: Scope, *, is_write: bool | None = None
    ) -> Principal:
        """The account of the request; LoginRequiredError without a credential,
        RepeatedCredentialError with two, ScopeMissingError if the key lacks the scope,
        RateLimitedError after too many requests, or too many that change something. Those need more
        than the scope `read`, unless `is_write` says otherwise."""
        credential = _credential(request)
        if _API_KEY.match(credential):
            principal = await self._by_key(credential)
        else:
            principal = await self.by_token(credential, self.logins)
        await self.admit(request, principal, scope, is_write=is_write)
        return principal

    async def admit(
        self, request: Request, principal: Principal, scope: Scope, *, is_write: bool | None = None
    ) -> None:
        """The same for who was authenticated otherwise."""
        await self.requests.count(principal.account_id)
        if not principal.scope.includes(scope):
            raise ScopeMissingError(details={"needed": scope, "scope": principal.scope})
        if is_write or (is_write is None and scope is not Scope.READ):
            await self.writes.count(principal.account_id)
        request.state.log = {"account_id": principal.account_id, "key_id": principal.key_id}
        watch_access(request.scope, partial(self.check, principal))

    async def admin(self, request: Request) -> Principal:
        is_write = request.method not in _READING
        principal = await self.require(request, Scope.ADMIN, is_write=is_write)
        if not principal.is_admin:
            raise AdminsOnlyError
        return principal

    async def issue(self, principal: Principal, logins: Logins) -> Login:
        """A token for the same account, which `by_token` accepts with the same `logins`."""
        account = await self.credentials.find_account(principal.account_id)
        if account is None:
            raise LoginRequiredError
        return logins.issue(
            account_id=account.account_id,
            token_version=account.token_version,
            now=utc_time(self.clock.now()),
            key_id=principal.key_id,
            until=principal.expires_at,
        )

    async def by_token(self, token: str, logins: Logins) -> Principal:
        """LoginRequiredError if the token is not valid, or no longer."""
        claim = logins.read(token, now=utc_time(self.clock.now()))
        account = await self.credentials.find_account(claim.account_id) if claim else None
        if claim is None or account is None or not account.has_login(claim.token_version):
            raise LoginRequiredError
        if claim.key_id is not None:
            return _principal_of(await self._require_key(claim.key_id))
        version, expires_at = claim.token_version, claim.expires_at
        return Principal(
            account.account_id, account.role, token_version=version, expires_at=expires_at
        )

    async def check(self, principal: Principal) -> None:
        """LoginRequiredError if its credential is no longer valid; for work that outlasts a
        request."""
        if principal.key_id is not None:
            await self._require_key(principal.key_id)
            return
        account = await self.credentials.find_account(principal.account_id)
        is_over = principal.expires_at is None or principal.expires_at <= utc_time(self.clock.now())
        if account is None or is_over or not account.has_login(principal.token_version):
            raise LoginRequiredError

    async def _require_key(self, key_id: str) -> KeyCredential:
        key = await self.credentials.find_key_by_id(key_id)
        if key is None or not key.holds_at(utc_time(self.clock.now())):
            raise LoginRequiredError
        return key

    async def _by_key(self, api_key: str) -> Principal:
        now = utc_time(self.clock.now())
        key = await self.credentials.find_key(hash_api_key(api_key))
        if key is None or not key.holds_at(now):
            raise LoginRequiredError
        due = now - LAST_USED_EVERY
        if key.last_used_at is None or key.last_used_at <= due:
            await self.credentials.touch_key(key.key_id, now=now, unless_after=due)
        return _principal_of(key)


def _principal_of(key: KeyCredential) -> Principal:
    account = key.account
    version = account.token_version
    return Principal(account.account_id, account.role, key.key_id, key.scope, version)


def _credential(request: Request) -> str:
    sent = find_credential(request.scope["headers"])
    if sent is None or not sent.text or (sent.is_key and not _API_KEY.match(sent.text)):
        raise LoginRequiredError
    return sent.text
