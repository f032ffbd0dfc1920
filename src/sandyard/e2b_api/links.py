"""Limits signed links that name no sandbox: to find who signed one takes a hash per sandbox."""

from collections.abc import Callable

from starlette.requests import Request
from starlette.types import ASGIApp, Receive, Scope, Send

from sandyard.e2b_api.envd.connect import SANDBOX_ID
from sandyard.e2b_api.errors import AccessTokenMissingError
from sandyard.kit.errors import RateLimitedError
from sandyard.kit.rate_limit import RateLimit


class UnnamedLinks:
    """Passes requests on. Raises RateLimitedError for one that names no sandbox, if too many such
    requests from its address were refused."""

    def __init__(
        self, app: ASGIApp, refusals: RateLimit, *, address_of: Callable[[Request], str]
    ) -> None:
        self._app = app
        self._refusals = refusals
        self._address_of = address_of

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope.get(SANDBOX_ID) is not None:
            await self._app(scope, receive, send)
            return
        address = self._address_of(Request(scope))
        if (wait := await self._refusals.peek(address)) is not None:
            raise RateLimitedError(retry_after=wait)
        try:
            await self._app(scope, receive, send)
        except AccessTokenMissingError:
            await self._refusals.wait_for(address)
            raise
