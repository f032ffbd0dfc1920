"""A pool belongs to one provider, on every engine."""

import asyncio

import pytest

from sandyard.broker.pool.ports import PoolStore
from sandyard.broker.provider.errors import ProviderChangeRefusedError, ProviderMismatchError
from sandyard.broker.provider.model import SIMULATED, ProviderBinding
from sandyard.broker.provider.service import PoolProvider
from sandyard.broker.verification import verify
from sandyard.kit.changes.events import EventQuery
from tests.support.broker.pools import NOW, fill
from tests.support.clocks import ManualClock

REAL = "https://csp.example.com"
MOVED = "https://csp.example.org"


def own(store: PoolStore, provider: str) -> PoolProvider:
    return PoolProvider(store, clock=ManualClock(NOW), configured=provider)


async def remembered(store: PoolStore) -> str | None:
    bound = await store.find_single(ProviderBinding)
    return bound.provider if bound else None


@pytest.mark.parametrize(("first", "second"), [(SIMULATED, REAL), (REAL, SIMULATED), (REAL, MOVED)])
async def test_a_pool_remembers_its_provider_and_refuses_another(
    store: PoolStore, first: str, second: str
) -> None:
    await own(store, first).require()
    await fill(store, 3)
    await own(store, first).require()
    with pytest.raises(ProviderMismatchError, match="sandyard pool set-provider") as refused:
        await own(store, second).require()
    assert refused.value.details == {"remembered": first, "configured": second}
    assert await remembered(store) == first


async def test_of_several_that_start_at_once_one_is_remembered(store: PoolStore) -> None:
    providers = [own(store, f"https://csp-{number}.example.com") for number in range(8)]
    outcomes = await asyncio.gather(*(p.require() for p in providers), return_exceptions=True)
    [winner] = [p for p, o in zip(providers, outcomes, strict=True) if o is None]
    assert await remembered(store) == winner.configured
    losers = [outcome for outcome in outcomes if outcome is not None]
    assert all(isinstance(each, ProviderMismatchError) for each in losers)


async def test_work_is_not_begun_with_another_provider(store: PoolStore) -> None:
    begun: list[str] = []

    async def work() -> None:
        begun.append("work")

    await own(store, SIMULATED).before(work)()
    with pytest.raises(ProviderMismatchError):
        await own(store, REAL).before(work)()
    assert begun == ["work"]


@pytest.mark.parametrize("provider", [SIMULATED, REAL])
async def test_a_new_pool_is_bound_to_any_provider(store: PoolStore, provider: str) -> None:
    await own(store, provider).require()
    assert await remembered(store) == provider


class TestChange:
    async def test_a_real_provider_may_have_a_new_address(self, store: PoolStore) -> None:
        await own(store, REAL).require()
        await fill(store, 2)
        assert await own(store, MOVED).change() == REAL
        await own(store, MOVED).require()
        with pytest.raises(ProviderMismatchError):
            await own(store, REAL).require()

    @pytest.mark.parametrize(("first", "second"), [(SIMULATED, REAL), (REAL, SIMULATED)])
    async def test_simulated_and_real_are_exchanged_only_while_the_pool_is_empty(
        self, store: PoolStore, first: str, second: str
    ) -> None:
        await own(store, first).require()
        assert await own(store, second).change() == first
        await fill(store, 1)
        with pytest.raises(ProviderChangeRefusedError):
            await own(store, first).change()
        assert await remembered(store) == second

    async def test_two_changes_at_once_end_with_one_of_them(self, store: PoolStore) -> None:
        await own(store, REAL).require()
        await asyncio.gather(own(store, MOVED).change(), own(store, f"{REAL}/v2").change())
        assert await remembered(store) in (MOVED, f"{REAL}/v2")


async def test_both_are_told_and_agree_with_what_is_remembered(store: PoolStore) -> None:
    await own(store, REAL).require()
    await own(store, MOVED).change()
    page = await store.events.page(EventQuery(subject="pool"), limit=9, cursor=None)
    told = [(each.event.kind, each.event.actor, each.event.data) for each in page.items]
    assert told == [
        ("pool.provider_changed", "operator", {"provider": MOVED}),
        ("pool.provider_set", "system", {"provider": REAL, "pool": "pool"}),
    ]
    assert (await verify(store)).problems == []
