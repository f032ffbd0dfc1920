"""Who may call: tokens of the environment, of clients, and of an OAuth2 issuer."""

from collections.abc import Sequence
from typing import ClassVar

from starlette.requests import Request

from sandyard.broker.clients.access import ClientAccess
from sandyard.broker.clients.errors import AddressNotAllowedError
from sandyard.broker.clients.model import BOOTSTRAP, Caller, ClientScope
from sandyard.broker.http import read_track_id
from sandyard.kit.errors import UnauthorizedError
from sandyard.kit.http.client_address import ClientAddress, Network, read_address
from sandyard.kit.http.security import bearer_token
from sandyard.kit.rotation import as_secret

_READS = frozenset({"GET", "HEAD"})


class Guard:
    """`accepted` are the environment's tokens: those of the bootstrap client, which has all scopes
    of its endpoints and no limits. They are all compared first, in constant time."""

    SCOPES: ClassVar[frozenset[ClientScope]]

    def __init__(self, accepted: Sequence[str], access: ClientAccess) -> None:
        self._accepted = as_secret(accepted)
        self._bootstrap = Caller(BOOTSTRAP, self.SCOPES)
        self.access = access

    async def caller(self, request: Request, scope: ClientScope) -> Caller:
        sent = bearer_token(request)
        if self._accepted.accepts(sent):
            return self._bootstrap
        try:
            return await self.access.caller(sent.decode("latin-1"), scope)
        except UnauthorizedError:
            if await self._accepted.accepts_newest(sent):
                return self._bootstrap
            raise


class TrackGuard(Guard):
    """Guards the endpoints of tracks."""

    SCOPES = frozenset({ClientScope.ALLOCATE})

    async def check_track(self, caller: Caller, track_id: str) -> None:
        """Raises unless the caller may act as this track now; a caller without limits always
        may."""
        if caller.track_prefix or caller.rate is not None:
            await self.access.check_track(caller, track_id)

    async def track(self, request: Request) -> str:
        caller = await self.caller(request, ClientScope.ALLOCATE)
        track_id = read_track_id(request.scope["headers"])
        await self.check_track(caller, track_id)
        request.state.client = caller
        return track_id


class AdminGuard(Guard):
    """Guards the endpoints of operators; accepts only `allowed` networks, if there are any."""

    SCOPES = frozenset({ClientScope.READ, ClientScope.OPERATE, ClientScope.ADMIN})

    def __init__(
        self,
        accepted: Sequence[str],
        access: ClientAccess,
        *,
        allowed: Sequence[Network] = (),
        addresses: ClientAddress | None = None,
    ) -> None:
        super().__init__(accepted, access)
        self._allowed = allowed
        self._addresses = addresses or ClientAddress()

    async def require(self, request: Request) -> Caller:
        """Requires `read` for read-only calls, otherwise `operate`."""
        return await self._require(
            request, ClientScope.READ if request.method in _READS else ClientScope.OPERATE
        )

    async def require_admin(self, request: Request) -> Caller:
        return await self._require(request, ClientScope.ADMIN)

    async def _require(self, request: Request, scope: ClientScope) -> Caller:
        self._check_address(request)
        caller = await self.caller(request, scope)
        request.state.client = caller
        return caller

    def _check_address(self, request: Request) -> None:
        if not self._allowed:
            return
        address = read_address(self._addresses.of(request))
        if address is None or not any(address in network for network in self._allowed):
            raise AddressNotAllowedError
