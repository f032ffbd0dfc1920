"""How old the list of open reservations may be when a claim uses it."""

import asyncio
from collections.abc import Sequence

import pytest

from sandyard.broker.pool.model import Claim
from sandyard.broker.reservations.cache import ReservationCache
from sandyard.broker.reservations.model import Reservation
from sandyard.broker.reservations.ports import ReservationStore
from sandyard.kit.errors import UnavailableError
from tests.support.broker.pools import NOW

CLAIM = Claim("course-1", "course-1", NOW)


class Store(ReservationStore):
    """Counts its reads; each takes a turn of the loop."""

    def __init__(self) -> None:
        self.names: list[str] = []
        self.reads = 0
        self.is_away = False

    async def open_reservations(self) -> Sequence[Reservation]:
        self.reads += 1
        if self.is_away:
            raise UnavailableError
        found = [
            Reservation(name, 2, NOW, NOW + 3600, NOW, track_prefix="course-", sequence=1)
            for name in self.names
        ]
        await asyncio.sleep(0)
        return found


@pytest.fixture
def store() -> Store:
    return Store()  # type: ignore[abstract]


@pytest.fixture
def cache(store: Store) -> ReservationCache:
    return ReservationCache(store)


def age(cache: ReservationCache, seconds: float, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cache, "_read_at", asyncio.get_running_loop().time() - seconds)


async def test_a_young_list_is_used_as_it_is(store: Store, cache: ReservationCache) -> None:
    assert await cache.of(CLAIM) == ()
    store.names.append("new")
    assert await cache.of(CLAIM) == ()
    assert store.reads == 1


async def test_after_a_second_the_list_is_read_while_claims_go_on(
    store: Store, cache: ReservationCache, monkeypatch: pytest.MonkeyPatch
) -> None:
    await cache.of(CLAIM)
    store.names.append("new")
    age(cache, 1, monkeypatch)
    assert await cache.of(CLAIM) == ()
    await asyncio.sleep(0.01)
    assert await cache.of(CLAIM) == ("new",)


async def test_the_first_claims_after_a_pause_share_one_read_and_wait_for_it(
    store: Store, cache: ReservationCache, monkeypatch: pytest.MonkeyPatch
) -> None:
    await cache.of(CLAIM)
    store.names.append("new")
    age(cache, 60, monkeypatch)
    assert await asyncio.gather(*(cache.of(CLAIM) for _ in range(300))) == [("new",)] * 300
    assert store.reads == 2


async def test_a_process_knows_of_its_own_reservations_at_once(
    store: Store, cache: ReservationCache
) -> None:
    await cache.of(CLAIM)
    store.names.append("new")
    cache.forget()
    assert await cache.of(CLAIM) == ("new",)


async def test_an_outage_leaves_the_list_as_it_was(
    store: Store, cache: ReservationCache, monkeypatch: pytest.MonkeyPatch
) -> None:
    store.names.append("known")
    await cache.of(CLAIM)
    age(cache, 60, monkeypatch)
    store.is_away = True
    assert await cache.of(CLAIM) == ("known",)
