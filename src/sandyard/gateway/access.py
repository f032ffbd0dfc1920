"""Access to a sandbox: open to everyone if it is public, else to holders of its access tokens; and
of web pages: by a token for one project, where an account's own credential is accepted too."""

from collections.abc import Awaitable, Callable
from dataclasses import KW_ONLY, dataclass
from datetime import datetime
from typing import Protocol

from starlette.requests import Request

from sandyard.gateway import errors, model
from sandyard.gateway.credentials import Credentials
from sandyard.gateway.errors import AccessTokenError
from sandyard.gateway.model import PageScope
from sandyard.gateway.ports import CredentialLookup, is_in_force
from sandyard.gateway.tokens import PREFIX, AccessTokens
from sandyard.kit.changes.events import actor
from sandyard.kit.clock import Clock, utc_time
from sandyard.kit.http.security import find_credential


@dataclass(frozen=True, slots=True)
class AccessRequest:
    """The properties of a request to a sandbox's host that decide access."""

    host: model.TargetHost
    method: str
    """`WEBSOCKET` for a WebSocket."""
    credentials: Credentials
    origins: list[bytes]


@dataclass(slots=True, eq=False)
class GatewayAccess:
    tokens: AccessTokens
    credentials: CredentialLookup
    domain: model.SandboxDomain
    _: KW_ONLY
    clock: Clock

    async def check(
        self, request: AccessRequest, target: model.Target | None, *, at: datetime
    ) -> model.Grant | None:
        """The grant that allows the request; None if the sandbox is public. Raises
        AddressUnknownError, the same whether such a sandbox exists or not;
        AccessTokenError, OriginRefusedError; TrafficTokenError if the target reports it. `at` is
        when the request arrived: a token that expired since then is still accepted."""
        shown = request.credentials
        by_token = await self._grant(request, target, at)
        if target is not None and by_token is not None:
            return by_token
        if target is not None and model.is_public(target, request.host):
            return None
        grant = self.tokens.read(shown.cookie, now=at, use="cookie") if shown.cookie else None
        if await self._holds(grant, request.host, target):
            self._require_own_origin(request)
            return grant
        if target is not None and target.reports_missing_token:
            raise (
                errors.TrafficTokenWrongError
                if shown.has_traffic_token
                else errors.TrafficTokenError
            )
        if shown.header is not None or shown.link is not None or shown.cookie is not None:
            raise errors.AccessTokenError
        raise errors.AddressUnknownError

    def cookie_for(self, grant: model.Grant, host: model.TargetHost) -> tuple[str, int]:
        """The value of the cookie for the grant at this host, and its lifetime in seconds."""
        left = grant.expires_at - self.now()
        return self.tokens.issue(grant, cookie_of=host), max(1, int(left.total_seconds()))

    async def _grant(
        self, request: AccessRequest, target: model.Target | None, at: datetime
    ) -> model.Grant | None:
        for token in (request.credentials.header, request.credentials.link):
            grant = self.tokens.read(token, now=at) if token else None
            if await self._holds(grant, request.host, target):
                return grant
        return None

    async def _holds(
        self, grant: model.Grant | None, host: model.TargetHost, target: model.Target | None
    ) -> bool:
        """Whether the grant covers the target, is its owner's, and is not revoked."""
        if grant is None or target is None or not grant.opens(host):
            return False
        if grant.account_id != target.account_id:
            return False
        return await is_in_force(grant, self.credentials, now=self.now())

    def _require_own_origin(self, request: AccessRequest) -> None:
        """Browsers send the cookie with requests from any page."""
        own = self.domain.origin_of(request.host)
        if request.method not in model.SAFE_METHODS and not model.is_own_origin(
            request.origins, own
        ):
            raise errors.OriginRefusedError

    def now(self) -> datetime:
        return utc_time(self.clock.now())


class Caller(Protocol):
    @property
    def account_id(self) -> str: ...

    @property
    def actor(self) -> str:
        """The actor in events."""


Check = Callable[[Request], Awaitable[Caller]]


@dataclass(frozen=True, slots=True)
class PageCaller:
    """A page that acts for an account, with one of its tokens."""

    account_id: str

    @property
    def actor(self) -> str:
        return actor("account", self.account_id)


@dataclass(slots=True, eq=False)
class PageAccess:
    """Creates checks that accept a project's access tokens as well as accounts' own credentials."""

    check_account: Check
    tokens: AccessTokens
    credentials: CredentialLookup
    _: KW_ONLY
    clock: Clock

    def check_for(self, scope: PageScope) -> Check:
        """For calls with a `project_id` in their path. Raises AccessTokenError for a token that
        does not allow this."""

        async def check(request: Request) -> Caller:
            sent = find_credential(request.scope["headers"])
            if sent is None or not sent.text.startswith(PREFIX):
                return await self.check_account(request)
            now = utc_time(self.clock.now())
            grant = self.tokens.read(sent.text, now=now)
            if grant is None or not grant.allows(scope, request.path_params["project_id"]):
                raise AccessTokenError
            if not await is_in_force(grant, self.credentials, now=now):
                raise AccessTokenError
            request.state.log = {"account_id": grant.account_id}
            return PageCaller(grant.account_id)

        return check
