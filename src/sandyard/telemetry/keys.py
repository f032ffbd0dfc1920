"""API keys: shown once, stored as a hash, and refused soon after they are revoked."""

import hmac
import re
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from sandyard.kit.changes.events import actor
from sandyard.kit.changes.transitions import Cause, change_entity
from sandyard.kit.clock import Clock, now_ms
from sandyard.kit.concurrency.tasks import KeyedLocks
from sandyard.kit.ids import IdMaker
from sandyard.kit.paging import Page
from sandyard.kit.wired import wired
from sandyard.telemetry.errors import ApiKeyNotFoundError, DeviceBusyError, InvalidApiKeyError
from sandyard.telemetry.intake import is_uuid4
from sandyard.telemetry.model import (
    LAST_USED_EVERY_MS,
    ApiKey,
    decide_revocation,
    hash_api_key,
    new_api_key,
    whole_second,
)
from sandyard.telemetry.ports import KeyStore

CACHED_SEC = 10
"""How long a valid key is cached. Together with the time of a read this stays below the 30 seconds
within which a revocation must take effect everywhere."""
_MOST_CACHED = 10_000

_OPERATOR = actor("operator")
_API_KEY = re.compile(r"[0-9a-f]{64}\Z")


@dataclass(frozen=True, slots=True)
class NewApiKey:
    key_id: str
    api_key: str
    """The key itself, which can't be shown again."""
    created_at: int
    description: str | None


@wired
class ApiKeys:
    """New keys are hashed with the first pepper; keys hashed with any of them are accepted."""

    store: KeyStore
    peppers: Sequence[str]
    clock: Clock
    make_key_id: IdMaker
    make_api_key: IdMaker
    monotonic: Callable[[], float] = time.monotonic

    def __post_init__(self) -> None:
        self._locks = KeyedLocks()
        self._cache: dict[str, tuple[ApiKey, float]] = {}
        """Valid keys by their hash, and until when."""
        self._revocations = 0

    async def create(self, *, description: str | None) -> NewApiKey:
        api_key = self.make_api_key()
        transition = new_api_key(
            key_id=self.make_key_id(),
            api_key_hash=hash_api_key(self.peppers[0], api_key),
            description=description,
            cause=Cause.by(_OPERATOR, self.clock),
        )
        read_at = self.monotonic()
        if not await self.store.apply(transition):
            raise DeviceBusyError
        key = transition.result
        self._remember(key, read_at)
        return NewApiKey(key.key_id, api_key, key.created_at, description)

    async def list(self, *, limit: int, cursor: str | None) -> Page[ApiKey]:
        return await self.store.page_of_keys(limit=limit, cursor=cursor)

    async def get(self, key_id: str) -> ApiKey:
        key = await self._find(key_id)
        if key is None:
            raise ApiKeyNotFoundError
        return key

    async def revoke(self, key_id: str) -> ApiKey:
        """Revoke a key: here at once, on every other replica within 30 seconds."""
        cause = Cause.by(_OPERATOR, self.clock)
        key = await change_entity(
            lambda: self._find(key_id),
            lambda key: decide_revocation(key, cause),
            self.store.apply,
            lock=self._locks.of(key_id),
            busy=DeviceBusyError,
        )
        self._cache.pop(key.api_key_hash, None)
        self._revocations += 1
        return key

    async def authenticate(self, api_key: str) -> ApiKey:
        """The active key with this value. Raises InvalidApiKeyError."""
        if not _API_KEY.match(api_key):
            raise InvalidApiKeyError
        hashes = [hash_api_key(pepper, api_key) for pepper in self.peppers]
        for api_key_hash in hashes:
            key, good_until = self._cache.get(api_key_hash, (None, 0))
            if key is not None and self.monotonic() < good_until:
                return await self._used(key, good_until)
        for api_key_hash in hashes:
            if key := await self._authenticated(api_key_hash):
                return key
        raise InvalidApiKeyError

    async def _authenticated(self, api_key_hash: str) -> ApiKey | None:
        read_at, revocations = self.monotonic(), self._revocations
        key = await self.store.find_key_by_hash(api_key_hash)
        is_right = hmac.compare_digest(key.api_key_hash if key else "", api_key_hash)
        if key is None or not is_right or not key.is_active:
            self._cache.pop(api_key_hash, None)
            return None
        if revocations == self._revocations:  # else this read may predate a revocation
            self._remember(key, read_at)
        return await self._used(key, read_at + CACHED_SEC)

    async def _used(self, key: ApiKey, good_until: float) -> ApiKey:
        used_at = now_ms(self.clock)
        due_at = used_at - LAST_USED_EVERY_MS
        if key.last_used_at is None or key.last_used_at <= due_at:
            key = replace(key, last_used_at=whole_second(used_at))
            if key.api_key_hash in self._cache:
                self._cache[key.api_key_hash] = (key, good_until)
            await self.store.touch_key(key.key_id, used_at=used_at, unless_after=due_at)
        return key

    async def _find(self, key_id: str) -> ApiKey | None:
        return await self.store.find_key(key_id) if is_uuid4(key_id) else None

    def _remember(self, key: ApiKey, read_at: float) -> None:
        if len(self._cache) >= _MOST_CACHED:
            self._cache.clear()
        self._cache[key.api_key_hash] = (key, read_at + CACHED_SEC)
