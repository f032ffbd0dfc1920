"""Clients, their tokens and their limits, on every engine."""

import asyncio
from collections.abc import AsyncIterator
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

import pytest
from prometheus_client import CollectorRegistry

from sandyard.broker.clients.access import ClientAccess
from sandyard.broker.clients.errors import (
    ClientBudgetError,
    ClientExistsError,
    ClientHoldLimitError,
    ClientLeaseLimitError,
    ClientNotFoundError,
    ClientRateLimitedError,
    ClientTokenNotFoundError,
    InsufficientScopeError,
    TokenExpiryPassedError,
    TooManyClientTokensError,
    TrackNotAllowedError,
)
from sandyard.broker.clients.model import Caller, ClientScope, Limits
from sandyard.broker.clients.ports import ClientStore
from sandyard.broker.clients.service import Clients
from sandyard.broker.clients.stores.dynamo import DynamoClientStore
from sandyard.broker.clients.stores.sql import SqlClientStore
from sandyard.broker.metrics import BrokerMetrics
from sandyard.broker.pool.errors import (
    InvalidLabMinutesError,
    NoSandboxesAvailableError,
    TrackRateLimitedError,
)
from sandyard.broker.pool.jobs import Holds
from sandyard.broker.pool.lease_model import Replacement
from sandyard.broker.pool.model import Claim, Claimed, decide_mark
from sandyard.broker.pool.ports import PoolStore
from sandyard.broker.stores.dynamodb import DynamoPoolStore
from sandyard.broker.stores.sql import SqlPoolStore
from sandyard.broker.verification import verify
from sandyard.kit.changes.events import EventQuery
from sandyard.kit.changes.transitions import Cause
from sandyard.kit.clock import SystemClock
from sandyard.kit.errors import SandyardError, UnauthorizedError, UnavailableError
from sandyard.kit.paging import InvalidCursorError, encode_cursor
from sandyard.kit.rate_limit import RateLimit
from tests.support.broker.pools import fill
from tests.support.broker.services import DAY_SEC, new_assigner, new_leases
from tests.support.clocks import ManualClock
from tests.support.storage.engines import STORE_ENGINES, broker_database, pool_table

TURNOVER = 6
ACME = Limits([ClientScope.ALLOCATE], track_prefix="acme-", rate="3/minute", max_leases=3)
READER = Limits([ClientScope.READ])
ONE_LEASE = Caller("acme", frozenset({ClientScope.ALLOCATE}), max_leases=1)


@dataclass
class Bench:
    pool: PoolStore
    store: ClientStore
    clock: ManualClock

    def __post_init__(self) -> None:
        self.clients = Clients(self.pool, self.store, clock=self.clock)
        self.metrics = BrokerMetrics(CollectorRegistry())
        self.leases = new_leases(
            self.pool, clock=self.clock, metrics=self.metrics, lease_max_sec=DAY_SEC
        )
        self.access = self.replica()

    def replica(self) -> ClientAccess:
        return ClientAccess(
            self.store,
            self.pool,
            clock=self.clock,
            metrics=self.metrics,
            turnover_per_hour=TURNOVER,
            rate_limit=lambda rate: RateLimit(rate, "async+memory://"),
        )

    async def claim(
        self, caller: Caller, track_id: str, *, lease_sec: int | None = None
    ) -> Claimed:
        async def claim() -> Claimed:
            now = int(self.clock.now())
            claimed = await self.pool.claim(Claim(track_id, track_id, now, lease_sec=lease_sec))
            if claimed is None:
                raise NoSandboxesAvailableError
            return claimed

        return await self.access.limited(caller, (track_id, track_id), claim)

    async def replace(self, caller: Caller, track_id: str, sandbox_id: str) -> str:
        wanted = Replacement(track_id, "broken")
        replace = partial(self.leases.replace, sandbox_id, wanted)
        lease = await self.access.limited_replacement(caller, track_id, sandbox_id, replace)
        return lease.sandbox_id

    def refused(self, outcome: str) -> float:
        return float(self.metrics.client_refused.labels(outcome)._value.get())

    async def give_up(self, caller: Caller, track_id: str) -> None:
        lease = await self.pool.find_lease(track_id, track_id)
        assert lease is not None
        cause = Cause("test", int(self.clock.now() * 1000))
        marked = decide_mark(await self.pool.find(lease.sandbox_id), track_id=track_id, cause=cause)
        assert marked is not None
        assert await self.pool.apply_together(marked)
        await self.access.give_back(caller, (track_id, track_id))


@pytest.fixture(params=STORE_ENGINES)
async def bench(
    request: pytest.FixtureRequest, tmp_path: Path, postgres_url: str, dynamo_url: str
) -> AsyncIterator[Bench]:
    clock = ManualClock(int(SystemClock().now()))
    if request.param == "dynamodb":
        async with pool_table(dynamo_url) as pool:
            store = DynamoPoolStore(pool, clock=clock, prefetch_size=15)
            yield Bench(store, DynamoClientStore(pool.table), clock)
        return
    async with broker_database(request.param, tmp_path, postgres_url) as database:
        yield Bench(SqlPoolStore(database), SqlClientStore(database), clock)


async def test_a_token_opens_what_its_scopes_say_until_it_is_revoked(bench: Bench) -> None:
    token = await bench.clients.create("acme", ACME, expires_at=None)
    caller = await bench.access.caller(token.text, ClientScope.ALLOCATE)
    assert (caller.name, caller.track_prefix, caller.max_leases) == ("acme", "acme-", 3)
    with pytest.raises(InsufficientScopeError):
        await bench.access.caller(token.text, ClientScope.READ)
    other = bench.replica()
    await other.caller(token.text, ClientScope.ALLOCATE)
    await bench.clients.revoke_token("acme", token.token_id)
    bench.clock.advance(29)
    for replica in (bench.access, other):
        with pytest.raises(UnauthorizedError):
            await replica.caller(token.text, ClientScope.ALLOCATE)


@pytest.mark.parametrize("sent", ["sbc-acme", "sbc-nobody.abcdefghijkl.{secret}", "sbc-{wrong}"])
async def test_what_is_no_token_is_refused(bench: Bench, sent: str) -> None:
    token = await bench.clients.create("acme", ACME, expires_at=None)
    wrong = f"acme.{token.token_id}.{'x' * 43}"
    with pytest.raises(UnauthorizedError):
        await bench.access.caller(
            sent.format(secret=token.secret, wrong=wrong), ClientScope.ALLOCATE
        )


async def test_several_tokens_each_with_its_end(bench: Bench) -> None:
    now = int(bench.clock.now())
    first = await bench.clients.create("acme", ACME, expires_at=now + 60)
    second = await bench.clients.add_token("acme", expires_at=None)
    bench.clock.advance(59)
    for token in (first, second):
        await bench.access.caller(token.text, ClientScope.ALLOCATE)
    bench.clock.advance(1)
    with pytest.raises(UnauthorizedError):
        await bench.access.caller(first.text, ClientScope.ALLOCATE)
    await bench.access.caller(second.text, ClientScope.ALLOCATE)
    for _ in range(9):
        await bench.clients.add_token("acme", expires_at=None)
    with pytest.raises(TooManyClientTokensError):
        await bench.clients.add_token("acme", expires_at=None)


async def test_a_token_that_would_never_be_in_force_is_refused(bench: Bench) -> None:
    now = int(bench.clock.now())
    with pytest.raises(TokenExpiryPassedError):
        await bench.clients.create("acme", ACME, expires_at=now)
    await bench.clients.create("acme", ACME, expires_at=now + 1)  # the name is still free
    with pytest.raises(TokenExpiryPassedError):
        await bench.clients.add_token("acme", expires_at=now - 1)


async def test_last_use_is_shown_and_no_event_tells_of_it(bench: Bench) -> None:
    token = await bench.clients.create("acme", ACME, expires_at=None)
    await bench.access.caller(token.text, ClientScope.ALLOCATE)
    await bench.access.close()
    [(client, [use])] = (await bench.clients.page(limit=10, cursor=None)).items
    assert client.name == "acme"
    assert use.last_used_at == int(bench.clock.now())
    page = await bench.pool.events.page(EventQuery(subject="client:acme"), limit=10, cursor=None)
    assert [each.event.kind for each in page.items] == ["client.token_added", "client.created"]
    told = str([each.event.data for each in page.items])
    assert token.secret not in told
    assert "hash" not in told


async def test_names_are_kept_apart_and_may_be_used_again(bench: Bench) -> None:
    old = await bench.clients.create("acme", ACME, expires_at=None)
    with pytest.raises(ClientExistsError):
        await bench.clients.create("acme", READER, expires_at=None)
    await bench.clients.delete("acme")
    for call in (bench.clients.delete("acme"), bench.clients.get("acme")):
        with pytest.raises(ClientNotFoundError):
            await call
    bench.clock.advance(30)
    await bench.clients.create("acme", READER, expires_at=None)
    with pytest.raises(ClientTokenNotFoundError):
        await bench.clients.revoke_token("acme", old.token_id)
    with pytest.raises(UnauthorizedError):
        await bench.access.caller(old.text, ClientScope.ALLOCATE)
    assert not (await verify(bench.pool, others=bench.store.clients)).problems


async def test_the_prefix_and_the_rate_hold(bench: Bench) -> None:
    caller = Caller("acme", frozenset({ClientScope.ALLOCATE}), "acme-", rate="3/minute")
    with pytest.raises(TrackNotAllowedError):
        await bench.access.check_track(caller, "other-1")
    for _ in range(3):
        await bench.access.check_track(caller, "acme-1")
    with pytest.raises(ClientRateLimitedError) as limited:
        await bench.access.check_track(caller, "acme-2")
    assert limited.value.retry_after


async def test_no_more_leases_than_allowed_however_many_ask_at_once(bench: Bench) -> None:
    await fill(bench.pool, 20)
    caller = Caller("acme", frozenset({ClientScope.ALLOCATE}), max_leases=3)
    outcomes = await asyncio.gather(
        *(bench.claim(caller, f"acme-{number % 10}") for number in range(20)),
        return_exceptions=True,
    )
    leases = [each for each in outcomes if isinstance(each, Claimed)]
    refused = [each for each in outcomes if isinstance(each, ClientLeaseLimitError)]
    assert len({each.lease.sandbox_id for each in leases}) == 3
    assert len(leases) + len(refused) == 20


async def test_a_repeat_is_answered_also_at_the_limit(bench: Bench) -> None:
    await fill(bench.pool, 5)
    unlimited = Caller("acme", frozenset({ClientScope.ALLOCATE}))
    before = await bench.claim(unlimited, "acme-before")
    caller = Caller("acme", frozenset({ClientScope.ALLOCATE}), max_leases=1)
    first = await bench.claim(caller, "acme-1")
    assert (await bench.claim(caller, "acme-1")).lease == first.lease
    assert (await bench.claim(caller, "acme-before")).lease == before.lease
    with pytest.raises(ClientLeaseLimitError):
        await bench.claim(caller, "acme-2")


async def test_what_ends_or_never_was_counts_no_more(bench: Bench) -> None:
    await fill(bench.pool, 1)
    caller = Caller("acme", frozenset({ClientScope.ALLOCATE}), max_leases=2)
    await bench.claim(caller, "acme-1")
    for _ in range(3):  # an empty pool costs no slot
        with pytest.raises(NoSandboxesAvailableError):
            await bench.claim(caller, "acme-2")
    await fill(bench.pool, 3, prefix="more")
    await bench.claim(caller, "acme-2")
    with pytest.raises(ClientLeaseLimitError):
        await bench.claim(caller, "acme-3")
    await bench.give_up(caller, "acme-1")
    await bench.claim(caller, "acme-3")
    bench.clock.advance(5 * 3600)  # the leases are past their end
    assert (await bench.clients.free_slots()).freed == 2
    assert (await bench.clients.free_slots()).freed == 0
    await bench.claim(caller, "acme-4")


async def test_a_late_repeat_of_giving_up_does_not_free_the_slot_of_a_newer_lease(
    bench: Bench,
) -> None:
    await fill(bench.pool, 3)
    caller = Caller("acme", frozenset({ClientScope.ALLOCATE}), max_leases=1)
    await bench.claim(caller, "acme-1")
    await bench.give_up(caller, "acme-1")
    await bench.claim(caller, "acme-1")
    await bench.access.give_back(caller, ("acme-1", "acme-1"))  # of the first lease, again
    with pytest.raises(ClientLeaseLimitError):
        await bench.claim(caller, "acme-2")


@pytest.mark.parametrize(
    "refusal", [TrackRateLimitedError(retry_after=1), InvalidLabMinutesError()], ids=repr
)
async def test_a_refused_claim_costs_no_slot_and_a_refused_repeat_keeps_its_own(
    bench: Bench, refusal: SandyardError
) -> None:
    await fill(bench.pool, 3)
    caller = Caller("acme", frozenset({ClientScope.ALLOCATE}), max_leases=1)

    async def refuse() -> Claimed:
        raise refusal

    async def ask_in_vain(track_id: str) -> None:
        with pytest.raises(type(refusal)):
            await bench.access.limited(caller, (track_id, track_id), refuse)

    await ask_in_vain("acme-0")
    await bench.claim(caller, "acme-1")
    await ask_in_vain("acme-1")
    with pytest.raises(ClientLeaseLimitError):
        await bench.claim(caller, "acme-2")


async def use_up_budget(bench: Bench, caller: Caller, track_id: str) -> None:
    for _ in range(TURNOVER):
        await bench.claim(caller, track_id)
        await bench.give_up(caller, track_id)


async def test_leasing_and_releasing_in_a_loop_ends_with_the_budget_of_the_hour(
    bench: Bench,
) -> None:
    await fill(bench.pool, 20)
    await use_up_budget(bench, ONE_LEASE, "acme-1")
    for track_id in ("acme-1", "acme-2"):
        with pytest.raises(ClientBudgetError) as refused:
            await bench.claim(ONE_LEASE, track_id)
    left = 3600 - int(bench.clock.now()) % 3600
    assert refused.value.retry_after == left
    assert refused.value.details == {"per_hour": TURNOVER}
    assert bench.refused("budget") == 2
    bench.clock.advance(left)
    await bench.claim(ONE_LEASE, "acme-1")


async def test_the_last_of_a_budget_is_taken_once(bench: Bench) -> None:
    await fill(bench.pool, 20)
    caller = replace(ONE_LEASE, max_leases=2)
    for number in range(2 * TURNOVER - 1):
        await bench.claim(caller, f"acme-{number}")
        await bench.give_up(caller, f"acme-{number}")
    outcomes = await asyncio.gather(
        *(bench.claim(caller, f"last-{number}") for number in range(6)), return_exceptions=True
    )
    assert sum(isinstance(each, Claimed) for each in outcomes) == 1
    assert {type(each) for each in outcomes} <= {Claimed, ClientBudgetError, ClientLeaseLimitError}


async def test_a_retry_and_a_refused_claim_cost_nothing(bench: Bench) -> None:
    await fill(bench.pool, 2)
    caller = replace(ONE_LEASE, max_leases=3)
    for _ in range(4):  # repeats, some at the same time
        await asyncio.gather(*(bench.claim(caller, "acme-1") for _ in range(3)))
    await bench.claim(caller, "acme-2")
    for _ in range(3 * TURNOVER):
        with pytest.raises(NoSandboxesAvailableError):
            await bench.claim(caller, "acme-3")
    await fill(bench.pool, 3 * TURNOVER, prefix="more")
    for _ in range(3 * TURNOVER - 2):
        await bench.claim(caller, "acme-3")
        await bench.give_up(caller, "acme-3")
    with pytest.raises(ClientBudgetError):
        await bench.claim(caller, "acme-3")
    assert not (await bench.claim(caller, "acme-1")).is_new, "also after the budget"


async def test_a_retry_after_a_lost_claim_costs_nothing(bench: Bench) -> None:
    await fill(bench.pool, 20)

    async def lost() -> Claimed:
        raise UnavailableError

    for _ in range(2 * TURNOVER):  # it is not known whether a lease was made
        with pytest.raises(UnavailableError):
            await bench.access.limited(ONE_LEASE, ("acme-1", "acme-1"), lost)
    await use_up_budget(bench, ONE_LEASE, "acme-1")
    with pytest.raises(ClientBudgetError):
        await bench.claim(ONE_LEASE, "acme-1")


async def test_leases_that_expire_one_after_the_other_cost_budget(bench: Bench) -> None:
    bench.clock.advance(3600 - int(bench.clock.now()) % 3600)
    await fill(bench.pool, 20)
    for _ in range(TURNOVER):
        assert (await bench.claim(ONE_LEASE, "acme-1", lease_sec=60)).is_new
        bench.clock.advance(60)
    with pytest.raises(ClientBudgetError):
        await bench.claim(ONE_LEASE, "acme-1", lease_sec=60)


async def test_a_lease_counts_whose_slot_a_refused_call_of_the_same_key_freed(
    bench: Bench,
) -> None:
    await fill(bench.pool, 3)

    async def refuse() -> Claimed:
        raise InvalidLabMinutesError

    async def claim() -> Claimed:
        with pytest.raises(InvalidLabMinutesError):
            await bench.access.limited(ONE_LEASE, ("acme-1", "acme-1"), refuse)
        claimed = await bench.pool.claim(Claim("acme-1", "acme-1", int(bench.clock.now())))
        assert claimed is not None
        return claimed

    await bench.access.limited(ONE_LEASE, ("acme-1", "acme-1"), claim)
    with pytest.raises(ClientLeaseLimitError):
        await bench.claim(ONE_LEASE, "acme-2")


async def test_replacing_in_a_loop_does_not_empty_the_pool(bench: Bench) -> None:
    await fill(bench.pool, 20)
    first = (await bench.claim(ONE_LEASE, "acme-1")).lease.sandbox_id
    second = await bench.replace(ONE_LEASE, "acme-1", first)
    with pytest.raises(ClientHoldLimitError):
        await bench.replace(ONE_LEASE, "acme-1", second)
    assert bench.refused("holds") == 1
    for _ in range(3):  # a repeat is answered, and costs nothing
        assert await bench.replace(ONE_LEASE, "acme-1", first) == second
    await bench.give_up(ONE_LEASE, "acme-1")
    with pytest.raises(ClientLeaseLimitError):
        await bench.claim(ONE_LEASE, "acme-1")


async def test_a_hold_counts_until_it_ends(bench: Bench) -> None:
    await fill(bench.pool, 20)
    first = (await bench.claim(ONE_LEASE, "acme-1")).lease.sandbox_id
    await bench.replace(ONE_LEASE, "acme-1", first)
    await bench.give_up(ONE_LEASE, "acme-1")
    bench.clock.advance(DAY_SEC - 1)
    assert (await bench.clients.free_slots()).freed == 0
    bench.clock.advance(1)
    assigner = new_assigner(bench.pool, clock=bench.clock)
    holds = Holds(bench.pool, clock=bench.clock, metrics=bench.metrics, assigner=assigner)
    assert (await holds.run()).deleted == 1
    assert (await bench.clients.free_slots()).freed == 1
    await bench.claim(ONE_LEASE, "acme-1")


async def test_replacements_cost_budget_and_refused_ones_do_not(bench: Bench) -> None:
    await fill(bench.pool, 1)
    caller = replace(ONE_LEASE, max_leases=TURNOVER)
    last = (await bench.claim(caller, "acme-1")).lease.sandbox_id
    for _ in range(TURNOVER):
        with pytest.raises(NoSandboxesAvailableError):
            await bench.replace(caller, "acme-1", last)
    await fill(bench.pool, 60, prefix="more")
    for _ in range(4):
        last = await bench.replace(caller, "acme-1", last)
    for _ in range(TURNOVER * TURNOVER - 5):
        await bench.claim(caller, "acme-2")
        await bench.give_up(caller, "acme-2")
    with pytest.raises(ClientBudgetError):
        await bench.replace(caller, "acme-1", last)


async def test_clients_are_listed_in_pages(bench: Bench) -> None:
    for name in ("c", "a", "e", "b", "d"):
        await bench.clients.create(name, ACME, expires_at=None)
    first = await bench.clients.page(limit=3, cursor=None)
    assert [client.name for client, _ in first.items] == ["a", "b", "c"]
    rest = await bench.clients.page(limit=3, cursor=first.next_cursor)
    assert [(client.name, len(uses)) for client, uses in rest.items] == [("d", 1), ("e", 1)]
    assert rest.next_cursor is None
    with pytest.raises(InvalidCursorError):
        await bench.clients.page(limit=3, cursor=encode_cursor("webhooks", ["c"]))
