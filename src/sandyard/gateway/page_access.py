"""Authentication of web pages: by a token for one project and a scope, where an account's own
credential is accepted too."""

from collections.abc import Awaitable, Callable
from dataclasses import KW_ONLY, dataclass
from typing import Protocol

from starlette.requests import Request

from sandyard.gateway.errors import AccessTokenError
from sandyard.gateway.model import PageScope
from sandyard.gateway.ports import CredentialLookup, is_in_force
from sandyard.gateway.tokens import PREFIX, AccessTokens
from sandyard.kit.changes.events import actor
from sandyard.kit.clock import Clock, utc_time
from sandyard.kit.http.security import find_credential


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
