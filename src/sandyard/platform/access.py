"""The guard of every endpoint of the Platform: a login or an API key, checked anew on each request.

What is taken away (a login, a key, a role, the whole account) is gone with the next request,
because credentials are looked up in the store each time, by one statement, and never cached.
"""

import re
from datetime import datetime, timedelta

from starlette.requests import Request

from sandyard.kit.clock import Clock, utc_time
from sandyard.kit.errors import ForbiddenError, UnauthorizedError
from sandyard.kit.http import SecurityScheme, find_credential, secured_by
from sandyard.platform.credentials import CredentialLookup, hash_api_key
from sandyard.platform.logins import Logins
from sandyard.platform.principal import Principal
from sandyard.platform.request_rate import RequestRate

LOGIN = SecurityScheme(
    "Login",
    "The `access_token` that `POST /api/v1/auth/login` answers, or an API key (`sbk-…`).",
)
ACCOUNT_KEY = SecurityScheme(
    "AccountKey",
    "The `api_key` that `POST /api/v1/api-keys` answers, once.",
    header="X-API-Key",
)
ACCOUNT_SECURITY = secured_by(LOGIN, ACCOUNT_KEY)
"""The security requirement of account-guarded endpoints, for `openapi_extra`."""

LAST_USED_EVERY = timedelta(minutes=5)

_API_KEY = re.compile(r"sbk-[a-z0-9]{40}\Z")


class LoginRequiredError(UnauthorizedError):
    """No valid credential. Log in, or send an API key: `Authorization: Bearer …`, once."""

    code = "LOGIN_REQUIRED"


class AdminsOnlyError(ForbiddenError):
    """Only admins may do this. Ask one of them."""

    code = "ADMINS_ONLY"


class AccessGuard:
    """Its methods are the checks of guarded routes."""

    def __init__(
        self,
        credentials: CredentialLookup,
        logins: Logins,
        requests: RequestRate,
        *,
        clock: Clock,
    ) -> None:
        self._credentials = credentials
        self._logins = logins
        self._requests = requests
        self._clock = clock

    async def account(self, request: Request) -> Principal:
        """The account that the request comes from; LoginRequiredError if it does not say,
        RepeatedCredentialError if it says so twice, RateLimitedError if it does too often."""
        credential = _credential(request)
        now = utc_time(self._clock.now())
        if _API_KEY.match(credential):
            principal = await self._by_key(credential, now)
        else:
            principal = await self._by_login(credential, now)
        await self._requests.count(principal.account_id)
        request.state.log = {"account_id": principal.account_id, "key_id": principal.key_id}
        return principal

    async def admin(self, request: Request) -> Principal:
        principal = await self.account(request)
        if not principal.is_admin:
            raise AdminsOnlyError
        return principal

    async def _by_login(self, token: str, now: datetime) -> Principal:
        claim = self._logins.read(token, now=now)
        account = await self._credentials.find_account(claim.account_id) if claim else None
        if (
            claim is None
            or account is None
            or not account.is_active
            or claim.token_version != account.token_version
        ):
            raise LoginRequiredError
        return Principal(account.account_id, account.role)

    async def _by_key(self, api_key: str, now: datetime) -> Principal:
        key = await self._credentials.find_key(hash_api_key(api_key))
        if key is None or not key.is_active or not key.account.is_active:
            raise LoginRequiredError
        due = now - LAST_USED_EVERY
        if key.last_used_at is None or key.last_used_at <= due:
            await self._credentials.touch_key(key.key_id, now=now, unless_after=due)
        return Principal(key.account.account_id, key.account.role, key.key_id)


def _credential(request: Request) -> str:
    """The one credential of the request."""
    sent = find_credential(request.scope["headers"])
    if sent is None or not sent.text or (sent.is_key and not _API_KEY.match(sent.text)):
        raise LoginRequiredError
    return sent.text
