"""API keys on every engine: known by their hash alone, and gone soon after they are revoked."""

import asyncio
import hashlib
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from sandyard.kit import ids
from sandyard.kit.changes.transitions import Transition
from sandyard.kit.errors import UnavailableError
from sandyard.kit.paging import InvalidCursorError, Page
from sandyard.telemetry.errors import ApiKeyNotFoundError, InvalidApiKeyError
from sandyard.telemetry.keys import CACHED_SEC, ApiKeys
from sandyard.telemetry.model import ApiKey
from sandyard.telemetry.ports import KeyStore
from tests.support.clocks import ManualClock
from tests.support.storage.engines import STORE_ENGINES
from tests.support.telemetry.engines import NOW_MS, Stores, lose_api_keys, telemetry_stores

PEPPER = "salt of the earth"


def keys_on(
    store: KeyStore, clock: ManualClock, *, pepper: str = PEPPER, monotonic: ManualClock
) -> ApiKeys:
    return ApiKeys(
        store,
        peppers=[pepper],
        clock=clock,
        make_key_id=ids.uuid4,
        make_api_key=ids.device_api_key,
        monotonic=monotonic.now,
    )


@pytest.fixture
def elsewhere(key_store: KeyStore, clock: ManualClock, monotonic: ManualClock) -> ApiKeys:
    """The same keys on another replica."""
    return keys_on(key_store, clock, monotonic=monotonic)


def hash_of(api_key: str, pepper: str = PEPPER) -> str:
    return hashlib.sha256(f"{pepper}{api_key}".encode()).hexdigest()


async def found(store: KeyStore, api_key: str) -> ApiKey:
    key = await store.find_key_by_hash(hash_of(api_key))
    assert key is not None
    return key


async def opens(keys: ApiKeys, api_key: str) -> bool:
    try:
        await keys.authenticate(api_key)
    except InvalidApiKeyError:
        return False
    return True


class TestCreate:
    async def test_only_the_peppered_hash_is_stored(
        self, keys: ApiKeys, key_store: KeyStore
    ) -> None:
        new = await keys.create(description="greenhouse cluster")
        assert len(bytes.fromhex(new.api_key)) == 32
        assert new.created_at == NOW_MS
        key = await found(key_store, new.api_key)
        assert key == ApiKey(
            key_id=new.key_id,
            api_key_hash=hash_of(new.api_key),
            created_at=new.created_at,
            is_active=True,
            description="greenhouse cluster",
            last_used_at=None,
            sequence=1,
        )

    async def test_a_new_key_is_valid_on_every_replica(
        self, keys: ApiKeys, elsewhere: ApiKeys
    ) -> None:
        new = await keys.create(description=None)
        assert (await keys.authenticate(new.api_key)).key_id == new.key_id
        assert (await elsewhere.authenticate(new.api_key)).key_id == new.key_id

    async def test_many_at_once_are_all_different(self, keys: ApiKeys) -> None:
        made = await asyncio.gather(*(keys.create(description=str(n)) for n in range(20)))
        assert len({each.api_key for each in made}) == len({each.key_id for each in made}) == 20
        for each in made:
            assert (await keys.authenticate(each.api_key)).description == each.description

    async def test_other_texts_are_not_valid_keys(self, keys: ApiKeys) -> None:
        key = (await keys.create(description=None)).api_key
        others = (
            key[:-1] + "A",
            key[:-1],
            f"{key}0",
            f"{key}\n",
            f" {key}",
            key[:-1] + ("0" if key[-1] != "0" else "1"),
            "",
            "ü" * 64,
            "0" * 64,
            hash_of(key),
        )
        for other in others:
            assert not await opens(keys, other)

    async def test_a_key_hashed_with_another_pepper_is_not_valid(
        self, keys: ApiKeys, key_store: KeyStore, clock: ManualClock, monotonic: ManualClock
    ) -> None:
        new = await keys.create(description=None)
        for pepper in ("", "Salt of the earth", PEPPER + "!"):
            other = keys_on(key_store, clock, pepper=pepper, monotonic=monotonic)
            assert not await opens(other, new.api_key)
        assert await opens(keys, new.api_key)


class TestList:
    async def test_newest_first_page_by_page(self, keys: ApiKeys, clock: ManualClock) -> None:
        made = []
        for number in range(11):
            made.append(await keys.create(description=f"key {number}"))
            clock.advance(number % 2)  # some share their second
        listed: list[ApiKey] = []
        cursor = None
        while True:
            page: Page[ApiKey] = await keys.list(limit=3, cursor=cursor)
            listed += page.items
            if (cursor := page.next_cursor) is None:
                break
            assert len(page.items) == 3
        assert {each.key_id for each in listed} == {each.key_id for each in made}
        assert len(listed) == 11
        ages = [each.created_at for each in listed]
        assert ages == sorted(ages, reverse=True)
        assert listed[0].created_at == made[-1].created_at

    async def test_revoked_ones_stay_in_the_list(self, keys: ApiKeys) -> None:
        new = await keys.create(description="gone")
        await keys.revoke(new.key_id)
        [listed] = (await keys.list(limit=10, cursor=None)).items
        assert (listed.key_id, listed.is_active) == (new.key_id, False)

    async def test_a_foreign_or_tampered_cursor_is_refused(self, keys: ApiKeys) -> None:
        for _ in range(3):
            await keys.create(description=None)
        cursor = (await keys.list(limit=1, cursor=None)).next_cursor
        assert cursor is not None
        for wrong in (cursor[:-2], "A" + cursor, "", "x", "ü", "~~~~"):
            with pytest.raises(InvalidCursorError):
                await keys.list(limit=1, cursor=wrong)


class TestRevoke:
    async def test_holds_at_once_where_it_was_done(self, keys: ApiKeys) -> None:
        new = await keys.create(description="x")
        assert await opens(keys, new.api_key)
        revoked = await keys.revoke(new.key_id)
        assert (revoked.key_id, revoked.is_active) == (new.key_id, False)
        assert not await opens(keys, new.api_key)

    async def test_a_second_time_is_the_same(self, keys: ApiKeys) -> None:
        new = await keys.create(description="x")
        assert await keys.revoke(new.key_id) == await keys.revoke(new.key_id)

    async def test_revoking_an_unknown_key_is_an_error(self, keys: ApiKeys) -> None:
        for key_id in ("", "x", "x" * 3000, "550e8400-e29b-41d4-a716-446655440000", "\x00", "ü"):
            with pytest.raises(ApiKeyNotFoundError):
                await keys.revoke(key_id)

    async def test_revoking_a_key_leaves_others_valid(self, keys: ApiKeys) -> None:
        gone, stays = [await keys.create(description=None) for _ in range(2)]
        await keys.revoke(gone.key_id)
        assert await opens(keys, stays.api_key)

    async def test_holds_elsewhere_as_soon_as_the_cache_is_old(
        self, keys: ApiKeys, elsewhere: ApiKeys, monotonic: ManualClock
    ) -> None:
        new = await keys.create(description=None)
        assert await opens(elsewhere, new.api_key)
        await keys.revoke(new.key_id)
        monotonic.advance(CACHED_SEC - 0.001)
        assert await opens(elsewhere, new.api_key)
        monotonic.advance(0.001)
        assert not await opens(elsewhere, new.api_key)
        assert not await opens(keys, new.api_key)

    async def test_holds_within_thirty_seconds_however_often_the_key_is_used(
        self, keys: ApiKeys, elsewhere: ApiKeys, clock: ManualClock, monotonic: ManualClock
    ) -> None:
        new = await keys.create(description=None)
        for second in range(100):
            # Every use may write the time of use, and none may make the key live longer.
            assert await opens(elsewhere, new.api_key), second
            monotonic.advance(1)
            clock.advance(400)
        await keys.revoke(new.key_id)
        outcomes = []
        for _ in range(30):
            outcomes.append(await opens(elsewhere, new.api_key))
            monotonic.advance(1)
            clock.advance(400)
        assert not outcomes[-1]
        assert outcomes == sorted(outcomes, reverse=True), "refused, and then taken again"

    async def test_a_slow_read_is_cached_from_its_start(
        self, keys: ApiKeys, key_store: KeyStore, clock: ManualClock, monotonic: ManualClock
    ) -> None:
        new = await keys.create(description=None)
        slow = InterruptedKeyStore(key_store)
        replica = keys_on(slow, clock, monotonic=monotonic)

        async def meanwhile() -> None:
            await keys.revoke(new.key_id)
            monotonic.advance(CACHED_SEC + 1)

        slow.meanwhile = meanwhile
        assert await opens(replica, new.api_key), "the answer was given before the revocation"
        assert not await opens(replica, new.api_key)

    async def test_a_read_that_began_before_a_revocation_is_not_cached(
        self, keys: ApiKeys, key_store: KeyStore, clock: ManualClock, monotonic: ManualClock
    ) -> None:
        new = await keys.create(description=None)
        slow = InterruptedKeyStore(key_store)
        replica = keys_on(slow, clock, monotonic=monotonic)
        slow.meanwhile = lambda: replica.revoke(new.key_id)
        await opens(replica, new.api_key)
        assert not await opens(replica, new.api_key)


class InterruptedKeyStore:
    """Something happens between an answer of the engine and its arrival."""

    def __init__(self, store: KeyStore) -> None:
        self._store = store
        self.meanwhile: Callable[[], Awaitable[object]] | None = None

    async def find_key_by_hash(self, api_key_hash: str) -> ApiKey | None:
        key = await self._store.find_key_by_hash(api_key_hash)
        if self.meanwhile is not None:
            meanwhile, self.meanwhile = self.meanwhile, None
            await meanwhile()
        return key

    async def find_key(self, key_id: str) -> ApiKey | None:
        return await self._store.find_key(key_id)

    async def apply(self, transition: Transition[ApiKey]) -> bool:
        return await self._store.apply(transition)

    async def page_of_keys(self, *, limit: int, cursor: str | None) -> Page[ApiKey]:
        return await self._store.page_of_keys(limit=limit, cursor=cursor)

    def all_keys(self) -> AsyncIterator[Sequence[ApiKey]]:
        return self._store.all_keys()

    async def touch_key(self, key_id: str, *, used_at: int, unless_after: int) -> None:
        await self._store.touch_key(key_id, used_at=used_at, unless_after=unless_after)


class TestLastUsed:
    async def test_is_written_at_most_every_five_minutes(
        self, keys: ApiKeys, key_store: KeyStore, clock: ManualClock, monotonic: ManualClock
    ) -> None:
        new = await keys.create(description=None)
        assert (await found(key_store, new.api_key)).last_used_at is None
        seen = []
        for _ in range(5):
            await keys.authenticate(new.api_key)
            seen.append((await found(key_store, new.api_key)).last_used_at)
            clock.advance(150)
            monotonic.advance(150)
        first, second, third = NOW_MS, NOW_MS + 300_000, NOW_MS + 600_000
        assert seen == [first, first, second, second, third]

    async def test_waits_for_the_whole_five_minutes_also_within_the_cache(
        self, keys: ApiKeys, key_store: KeyStore, clock: ManualClock
    ) -> None:
        new = await keys.create(description=None)
        await keys.authenticate(new.api_key)
        for advance, expected in ((299, NOW_MS), (1, NOW_MS + 300_000)):
            clock.advance(advance)
            await keys.authenticate(new.api_key)
            assert (await found(key_store, new.api_key)).last_used_at == expected

    async def test_replicas_write_a_use_only_once(
        self,
        keys: ApiKeys,
        elsewhere: ApiKeys,
        key_store: KeyStore,
        clock: ManualClock,
    ) -> None:
        new = await keys.create(description=None)
        await keys.authenticate(new.api_key)
        clock.advance(200)
        await elsewhere.authenticate(new.api_key)
        assert (await found(key_store, new.api_key)).last_used_at == NOW_MS

    async def test_the_store_itself_keeps_the_later_time(
        self, keys: ApiKeys, key_store: KeyStore
    ) -> None:
        """Replicas whose caches know nothing of each other write at once."""
        new = await keys.create(description=None)
        await key_store.touch_key(new.key_id, used_at=NOW_MS, unless_after=NOW_MS - 300_000)
        before = await found(key_store, new.api_key)
        await key_store.touch_key(new.key_id, used_at=NOW_MS + 299_000, unless_after=NOW_MS - 1000)
        assert await found(key_store, new.api_key) == before
        await key_store.touch_key(new.key_id, used_at=NOW_MS + 300_000, unless_after=NOW_MS)
        after = await found(key_store, new.api_key)
        assert after == replace(before, last_used_at=NOW_MS + 300_000)

    async def test_a_use_of_an_unknown_key_makes_none(self, key_store: KeyStore) -> None:
        await key_store.touch_key(ids.uuid4(), used_at=NOW_MS, unless_after=NOW_MS - 300_000)
        assert list((await key_store.page_of_keys(limit=5, cursor=None)).items) == []

    async def test_a_use_does_not_undo_a_revocation(
        self, keys: ApiKeys, elsewhere: ApiKeys, key_store: KeyStore, clock: ManualClock
    ) -> None:
        new = await keys.create(description=None)
        await elsewhere.authenticate(new.api_key)
        await keys.revoke(new.key_id)
        clock.advance(301)
        assert await opens(elsewhere, new.api_key)  # cached still, and due to be written
        assert not (await found(key_store, new.api_key)).is_active


class TestEngineAway:
    @pytest.fixture(params=STORE_ENGINES)
    async def stores(
        self, request: pytest.FixtureRequest, tmp_path: Path, postgres_url: str, dynamo_url: str
    ) -> AsyncIterator[Stores]:
        """Not the ones that the others share: these will be broken."""
        async with telemetry_stores(request.param, tmp_path, postgres_url, dynamo_url) as stores:
            yield stores

    async def test_an_outage_is_not_an_invalid_key(
        self, keys: ApiKeys, stores: Stores, monotonic: ManualClock
    ) -> None:
        new = await keys.create(description=None)
        assert await opens(keys, new.api_key)
        await lose_api_keys(stores)
        monotonic.advance(CACHED_SEC - 0.001)
        assert await opens(keys, new.api_key), "known for good a moment ago"
        monotonic.advance(0.001)
        for api_key in (new.api_key, "0" * 64):
            with pytest.raises(UnavailableError):
                await keys.authenticate(api_key)
        with pytest.raises(InvalidApiKeyError):
            await keys.authenticate("no key at all")
        with pytest.raises(UnavailableError):
            await keys.revoke(new.key_id)
        with pytest.raises(UnavailableError):
            await keys.list(limit=1, cursor=None)
        with pytest.raises(UnavailableError):
            await keys.create(description=None)
