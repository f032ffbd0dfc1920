"""Who may pass to a sandbox: anybody if it is public, else the holders of its access tokens."""

from dataclasses import dataclass
from datetime import datetime

from sandyard.gateway.credentials import Credentials
from sandyard.gateway.errors import (
    AccessTokenError,
    AddressUnknownError,
    OriginRefusedError,
    TrafficTokenError,
    TrafficTokenWrongError,
)
from sandyard.gateway.model import (
    SAFE_METHODS,
    Grant,
    SandboxDomain,
    Target,
    TargetHost,
    is_own_origin,
)
from sandyard.gateway.ports import AccountLookup
from sandyard.gateway.tokens import AccessTokens
from sandyard.kit.clock import Clock, utc_time


@dataclass(frozen=True, slots=True)
class AccessRequest:
    """A request to a sandbox's host, as far as it matters for who may pass."""

    host: TargetHost
    method: str
    """`WEBSOCKET` for one."""
    credentials: Credentials
    origins: list[bytes]


@dataclass(frozen=True, slots=True)
class AccessDecision:
    """The request may pass, by this grant; None if the sandbox is public."""

    grant: Grant | None = None


class GatewayAccess:
    def __init__(
        self, tokens: AccessTokens, accounts: AccountLookup, domain: SandboxDomain, *, clock: Clock
    ) -> None:
        self._tokens = tokens
        self._accounts = accounts
        self._domain = domain
        self._clock = clock

    async def check(
        self, request: AccessRequest, target: Target | None, *, at: datetime
    ) -> AccessDecision:
        """Raises AddressUnknownError, the same whether there is such a sandbox or not;
        AccessTokenError, OriginRefusedError; TrafficTokenError where that one is told. `at` is
        when the request came: what has expired since then still passes."""
        shown = request.credentials
        by_token = await self._grant(request, target, at)
        if target is not None and by_token is not None:
            return AccessDecision(by_token)
        if target is not None and target.is_public:
            return AccessDecision()
        by_cookie = await self._grant_of_cookie(request, target, at)
        if by_cookie is not None:
            self._require_own_origin(request)
            return AccessDecision(by_cookie)
        if target is not None and target.tells_of_token:
            raise TrafficTokenWrongError if shown.has_traffic_token else TrafficTokenError
        if shown.header is not None or shown.link is not None or shown.cookie is not None:
            raise AccessTokenError
        raise AddressUnknownError

    def cookie_for(self, grant: Grant, host: TargetHost) -> tuple[str, int]:
        """The value of the cookie that the grant gives at this host, and its seconds."""
        left = grant.expires_at - self.now()
        return self._tokens.issue_cookie(grant, host), max(1, int(left.total_seconds()))

    async def _grant(
        self, request: AccessRequest, target: Target | None, at: datetime
    ) -> Grant | None:
        for token in (request.credentials.header, request.credentials.link):
            grant = self._tokens.read(token, now=at) if token else None
            if await self._holds(grant, request.host, target):
                return grant
        return None

    async def _grant_of_cookie(
        self, request: AccessRequest, target: Target | None, at: datetime
    ) -> Grant | None:
        cookie = request.credentials.cookie
        grant = self._tokens.read_cookie(cookie, now=at) if cookie else None
        return grant if await self._holds(grant, request.host, target) else None

    async def _holds(self, grant: Grant | None, host: TargetHost, target: Target | None) -> bool:
        """Whether it opens the target, is its owner's, and that one has not revoked it."""
        if grant is None or target is None or not grant.opens(host):
            return False
        if grant.account_id != target.account_id:
            return False
        account = await self._accounts.find_account(grant.account_id)
        return (
            account is not None
            and account.is_active
            and account.token_version == grant.token_version
        )

    def _require_own_origin(self, request: AccessRequest) -> None:
        """A cookie goes along with whatever any page sends here."""
        own = self._domain.origin_of(request.host)
        if request.method not in SAFE_METHODS and not is_own_origin(request.origins, own):
            raise OriginRefusedError

    def now(self) -> datetime:
        return utc_time(self._clock.now())
