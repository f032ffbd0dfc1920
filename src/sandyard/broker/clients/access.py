"""Authenticates callers by client token or access token, and enforces their limits.

A client is cached for a few seconds, so that a revoked token is refused everywhere well within half
a minute.
"""

import sys
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Protocol, TypeVar

from sandyard.broker.clients import errors, model
from sandyard.broker.clients.ports import ClientStore
from sandyard.broker.clients.service import is_slot_in_use
from sandyard.broker.metrics import BrokerMetrics
from sandyard.broker.pool.model import Claimed, Lease, is_sandbox_id
from sandyard.broker.pool.ports import PoolStore
from sandyard.kit import errors as kit_errors
from sandyard.kit.clock import Clock
from sandyard.kit.concurrency.tasks import Background
from sandyard.kit.wired import wired

T = TypeVar("T")

_CACHE_SEC = 15.0
_MOST_CACHED = 10_000
_USE_EVERY_SEC = 300
_RETRY_AFTER = 30
_REFUSALS = (
    kit_errors.ConflictError,
    kit_errors.ExhaustedError,
    kit_errors.ForbiddenError,
    kit_errors.InvalidError,
    kit_errors.NotFoundError,
    kit_errors.RateLimitedError,
)


class AccessTokens(Protocol):
    """Access tokens of an issuer."""

    async def caller(self, token: str) -> model.Caller:
        """The caller with this token. Raises UnauthorizedError, or IssuerUnavailableError if the
        token can't be verified now."""


class RateLimit(Protocol):
    async def wait_for(self, key: str) -> int | None: ...


@dataclass(slots=True)
class _CachedClient:
    client: model.Client | None
    caller: model.Caller | None
    until: float


@wired
class ClientAccess:
    """`rate_limit` returns the limiter for a rate such as `100/minute`. `turnover_per_hour` is
    how many sandboxes a client may take in an hour for each lease that it may have; 0: any."""

    store: ClientStore
    pool: PoolStore
    clock: Clock
    metrics: BrokerMetrics
    turnover_per_hour: int
    rate_limit: Callable[[str], RateLimit]
    access_tokens: AccessTokens | None = None

    def __post_init__(self) -> None:
        self._limits: dict[str, RateLimit] = {}
        self._known: dict[str, _CachedClient] = {}
        self._used: dict[str, float] = {}
        self._background = Background()

    async def caller(self, token: str, scope: model.ClientScope) -> model.Caller:
        """The caller with this token. Raises UnauthorizedError, or InsufficientScopeError."""
        if token.startswith(model.PREFIX):
            caller = await self._caller(token)
        elif self.access_tokens is not None and token.count(".") == 2:
            caller = await self.access_tokens.caller(token)
        else:
            raise kit_errors.UnauthorizedError
        if scope not in caller.scopes:
            raise errors.InsufficientScopeError(
                f"The token is valid but lacks the scope `{scope}`. Use one that has it.",
                details={"scope": str(scope)},
            )
        return caller

    async def check_track(self, caller: model.Caller, track_id: str) -> None:
        """Counts one call. Raises TrackNotAllowedError or ClientRateLimitedError."""
        if not caller.may_call_as(track_id):
            raise errors.TrackNotAllowedError(details={"track_prefix": caller.track_prefix})
        if caller.rate is None:
            return
        wait = await self._limiter(caller.rate).wait_for(caller.name)
        if wait is not None:
            self.metrics.client_refused.labels("rate").inc()
            raise errors.ClientRateLimitedError(retry_after=wait)

    async def limited(
        self, caller: model.Caller, lease_key: tuple[str, str], claim: Callable[[], Awaitable[T]]
    ) -> T:
        """Claim within the client's lease limit and budget. Raises ClientLeaseLimitError and
        ClientBudgetError, except for a repeat.

        A refused claim frees its slot, unless the track and key already have a lease. A claim with
        an unknown outcome keeps its slot: a retry finds it, or the job frees it.
        """
        if caller.max_leases is None:
            return await claim()
        now_ms = int(self.clock.now() * 1000)
        slot = await self._take_slot(caller, lease_key, caller.max_leases, now_ms)
        if slot is model.Slot.USED and not await self._is_in_use(lease_key):  # its lease has ended
            await self.store.free_slot(caller.name, lease_key, if_used=True)
            slot = await self._take_slot(caller, lease_key, caller.max_leases, now_ms)
        if slot in model.SLOT_REFUSED and not await self._is_in_use(lease_key):
            raise self._refusal(caller, slot, errors.ClientLeaseLimitError, now_ms)
        try:
            answer = await claim()
        except _REFUSALS:  # the slot stays if the same track and key called again since
            if not await self._is_in_use(lease_key):
                await self.store.free_slot(caller.name, lease_key, taken_at_ms=now_ms)
            raise
        if isinstance(answer, Claimed):
            await self._pay(caller, lease_key, slot, answer, now_ms)
        return answer

    async def _pay(
        self,
        caller: model.Caller,
        lease_key: tuple[str, str],
        slot: model.Slot,
        claimed: Claimed,
        now_ms: int,
    ) -> None:
        if not claimed.is_new:
            if slot is model.Slot.UNUSED:
                await self.store.use_slot(caller.name, lease_key)
            return
        if slot is not model.Slot.UNUSED:  # the lease that it was used for ended during the call
            await self.store.free_slot(caller.name, lease_key, if_used=True)
        await self._use_slot(caller, lease_key, now_ms)

    async def _use_slot(self, caller: model.Caller, key: tuple[str, str], now_ms: int) -> None:
        """Whatever the limits: what was leased counts, also if another call freed its slot."""
        while not await self.store.use_slot(caller.name, key):
            await self.store.take_slot(
                caller.name, key, most=sys.maxsize, per_hour=None, now_ms=now_ms
            )

    async def limited_replacement(
        self,
        caller: model.Caller,
        track_id: str,
        sandbox_id: str,
        replace: Callable[[], Awaitable[Lease]],
    ) -> Lease:
        """Replace a sandbox within the client's limits: it counts as a lease as long as it is held,
        and the one that replaces it costs budget. So that a client that uses all its leases can
        replace a broken one, it may have as many held besides. Raises ClientHoldLimitError and
        ClientBudgetError, except for a repeat."""
        if caller.max_leases is None or await self._is_repeat(sandbox_id):
            return await replace()
        now_ms = int(self.clock.now() * 1000)
        key = model.held_slot(track_id, sandbox_id)
        slot = await self._take_slot(caller, key, 2 * caller.max_leases, now_ms)
        if slot in model.SLOT_REFUSED:
            raise self._refusal(caller, slot, errors.ClientHoldLimitError, now_ms)
        try:
            lease = await replace()
        except _REFUSALS:
            if not await self._is_in_use(key):
                await self.store.free_slot(caller.name, key, taken_at_ms=now_ms)
            raise
        await self._use_slot(caller, key, now_ms)
        return lease

    async def _is_repeat(self, sandbox_id: str) -> bool:
        """Whether the sandbox was replaced before, or does not exist."""
        row = await self.pool.find(sandbox_id) if is_sandbox_id(sandbox_id) else None
        return row is None or row.replaced_by is not None

    async def _take_slot(
        self, caller: model.Caller, lease_key: tuple[str, str], most: int, now_ms: int
    ) -> model.Slot:
        return await self.store.take_slot(
            caller.name, lease_key, most=most, per_hour=self._budget_of(caller), now_ms=now_ms
        )

    def _budget_of(self, caller: model.Caller) -> int | None:
        """How many sandboxes the client may take from the pool in an hour; None: no limit."""
        return (caller.max_leases or 0) * self.turnover_per_hour or None

    def _refusal(
        self,
        caller: model.Caller,
        slot: model.Slot,
        at_limit: type[errors.ClientLeaseLimitError | errors.ClientHoldLimitError],
        now_ms: int,
    ) -> kit_errors.SandyardError:
        if slot is model.Slot.OVER_BUDGET:
            self.metrics.client_refused.labels("budget").inc()
            details = {"per_hour": self._budget_of(caller)}
            return errors.ClientBudgetError(
                retry_after=model.hour_left_sec(now_ms), details=details
            )
        outcome = "leases" if at_limit is errors.ClientLeaseLimitError else "holds"
        self.metrics.client_refused.labels(outcome).inc()
        return at_limit(retry_after=_RETRY_AFTER, details={"max_leases": caller.max_leases})

    async def give_back(self, caller: model.Caller, lease_key: tuple[str, str]) -> None:
        """Free the slot after a lease has ended, unless the track and key have another one by
        now."""
        if caller.max_leases is not None and not await self._is_in_use(lease_key):
            await self.store.free_slot(caller.name, lease_key)

    async def _is_in_use(self, lease_key: tuple[str, str]) -> bool:
        return await is_slot_in_use(self.pool, *lease_key, now=int(self.clock.now()))

    async def close(self) -> None:
        await self._background.finish()

    async def _caller(self, text: str) -> model.Caller:
        token = model.parse_token(text)
        if token is None:
            raise kit_errors.UnauthorizedError
        now = self.clock.now()
        known = await self._find(token.client, now)
        if known.client is None or not known.client.accepts(token, int(now)):
            raise kit_errors.UnauthorizedError
        self._note_use(token, now)
        return known.caller or known.client.caller

    async def _find(self, name: str, now: float) -> _CachedClient:
        known = self._known.get(name)
        if known is None or now >= known.until:
            if len(self._known) >= _MOST_CACHED:
                self._known.clear()
            client = await self.store.find_client(name)
            caller = None if client is None else client.caller
            known = self._known[name] = _CachedClient(client, caller, now + _CACHE_SEC)
        return known

    def _note_use(self, token: model.SentToken, now: float) -> None:
        if now - self._used.get(token.token_id, 0) >= _USE_EVERY_SEC:
            if len(self._used) >= _MOST_CACHED:
                self._used.clear()
            self._used[token.token_id] = now
            note = self.store.note_use(token.token_id, at=int(now))
            self._background.start(note, action="note the use of a token")

    def _limiter(self, rate: str) -> RateLimit:
        if rate not in self._limits:
            self._limits[rate] = self.rate_limit(rate)
        return self._limits[rate]
