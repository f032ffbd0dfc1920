"""Authenticates callers by client token or access token, and enforces their limits.

A client is cached for a few seconds, so that a revoked token is refused everywhere well within half
a minute.
"""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Protocol, TypeVar

from sandyard.broker.clients.errors import (
    ClientLeaseLimitError,
    ClientRateLimitedError,
    InsufficientScopeError,
    TrackNotAllowedError,
)
from sandyard.broker.clients.model import (
    PREFIX,
    Caller,
    Client,
    ClientScope,
    SentToken,
    parse_token,
)
from sandyard.broker.clients.ports import ClientStore
from sandyard.broker.pool.ports import PoolStore
from sandyard.kit.clock import Clock
from sandyard.kit.concurrency.background import Background
from sandyard.kit.errors import (
    ConflictError,
    ExhaustedError,
    ForbiddenError,
    InvalidError,
    NotFoundError,
    RateLimitedError,
    UnauthorizedError,
)

T = TypeVar("T")

_CACHE_SEC = 15.0
_MOST_CACHED = 10_000
_USE_EVERY_SEC = 300
_RETRY_AFTER = 30
_REFUSALS = (
    ConflictError,
    ExhaustedError,
    ForbiddenError,
    InvalidError,
    NotFoundError,
    RateLimitedError,
)


class AccessTokens(Protocol):
    """Access tokens of an issuer."""

    async def caller(self, token: str) -> Caller:
        """The caller with this token. Raises UnauthorizedError, or IssuerUnavailableError if the
        token can't be verified now."""
        ...


class RateLimit(Protocol):
    async def wait_for(self, key: str) -> int | None: ...


@dataclass(slots=True)
class _CachedClient:
    client: Client | None
    caller: Caller | None
    until: float


class ClientAccess:
    def __init__(
        self,
        store: ClientStore,
        pool: PoolStore,
        *,
        clock: Clock,
        rate_limit: Callable[[str], RateLimit],
        access_tokens: AccessTokens | None = None,
    ) -> None:
        """`rate_limit` returns the limiter for a rate such as `100/minute`."""
        self._store = store
        self._pool = pool
        self._clock = clock
        self._rate_limit = rate_limit
        self._limits: dict[str, RateLimit] = {}
        self._access_tokens = access_tokens
        self._known: dict[str, _CachedClient] = {}
        self._used: dict[str, float] = {}
        self._background = Background()

    async def caller(self, token: str, scope: ClientScope) -> Caller:
        """The caller with this token. Raises UnauthorizedError, or InsufficientScopeError."""
        if token.startswith(PREFIX):
            caller = await self._caller(token)
        elif self._access_tokens is not None and token.count(".") == 2:
            caller = await self._access_tokens.caller(token)
        else:
            raise UnauthorizedError
        if scope not in caller.scopes:
            raise InsufficientScopeError(
                f"The token is valid but lacks the scope `{scope}`. Use one that has it.",
                details={"scope": str(scope)},
            )
        return caller

    async def check_track(self, caller: Caller, track_id: str) -> None:
        """Counts one call. Raises TrackNotAllowedError or ClientRateLimitedError."""
        if not caller.may_call_as(track_id):
            raise TrackNotAllowedError(details={"track_prefix": caller.track_prefix})
        if caller.rate is None:
            return
        wait = await self._limiter(caller.rate).wait_for(caller.name)
        if wait is not None:
            raise ClientRateLimitedError(retry_after=wait)

    async def limited(
        self, caller: Caller, lease_key: tuple[str, str], claim: Callable[[], Awaitable[T]]
    ) -> T:
        """Claim within the client's lease limit. Raises ClientLeaseLimitError, except for a repeat.

        A refused claim frees its slot, unless the track and key already have a lease. A claim with
        an unknown outcome keeps its slot: a retry finds it, or the job frees it.
        """
        if caller.max_leases is None:
            return await claim()
        now_ms = int(self._clock.now() * 1000)
        taken = await self._store.take_slot(
            caller.name, lease_key, most=caller.max_leases, now_ms=now_ms
        )
        if not taken and not await self._has_lease(lease_key):
            raise ClientLeaseLimitError(retry_after=_RETRY_AFTER)
        try:
            return await claim()
        except _REFUSALS:  # the slot stays if the same track and key called again since
            if not await self._has_lease(lease_key):
                await self._store.free_slot(caller.name, lease_key, taken_at_ms=now_ms)
            raise

    async def give_back(self, caller: Caller, lease_key: tuple[str, str]) -> None:
        """Free the slot after a lease has ended, unless the track and key have another one by
        now."""
        if caller.max_leases is not None and not await self._has_lease(lease_key):
            await self._store.free_slot(caller.name, lease_key)

    async def _has_lease(self, lease_key: tuple[str, str]) -> bool:
        lease = await self._pool.find_lease(*lease_key)
        return lease is not None and lease.is_live(int(self._clock.now()))

    async def close(self) -> None:
        await self._background.finish()

    async def _caller(self, text: str) -> Caller:
        token = parse_token(text)
        if token is None:
            raise UnauthorizedError
        now = self._clock.now()
        known = await self._find(token.client, now)
        if known.client is None or not known.client.accepts(token, int(now)):
            raise UnauthorizedError
        self._note_use(token, now)
        return known.caller or known.client.caller

    async def _find(self, name: str, now: float) -> _CachedClient:
        known = self._known.get(name)
        if known is None or now >= known.until:
            if len(self._known) >= _MOST_CACHED:
                self._known.clear()
            client = await self._store.find_client(name)
            caller = None if client is None else client.caller
            known = self._known[name] = _CachedClient(client, caller, now + _CACHE_SEC)
        return known

    def _note_use(self, token: SentToken, now: float) -> None:
        if now - self._used.get(token.token_id, 0) >= _USE_EVERY_SEC:
            if len(self._used) >= _MOST_CACHED:
                self._used.clear()
            self._used[token.token_id] = now
            note = self._store.note_use(token.token_id, at=int(now))
            self._background.start(note, action="note the use of a token")

    def _limiter(self, rate: str) -> RateLimit:
        if rate not in self._limits:
            self._limits[rate] = self._rate_limit(rate)
        return self._limits[rate]
