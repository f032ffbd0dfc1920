"""The probe at the claim, on every engine: no track hears of a sandbox that fails, or of one that
another call with its key replaces."""

import asyncio
from collections import defaultdict
from functools import partial
from typing import Any

import pytest
from prometheus_client import CollectorRegistry

from sandyard.broker.metrics import BrokerMetrics
from sandyard.broker.pool.errors import NoSandboxesAvailableError
from sandyard.broker.pool.lease_model import Replacement
from sandyard.broker.pool.model import Claim, Lease, Sandbox, Status
from sandyard.broker.pool.ports import PoolStore
from sandyard.broker.probes.errors import ProbeDeadlineError
from sandyard.broker.probes.model import UNPROBED_SEC
from sandyard.broker.probes.service import CallProber, ClaimChecker
from sandyard.broker.reservations.model import Booking
from sandyard.broker.verification import verify
from tests.support.broker.pools import LAB_SEC, check_invariants, everything, fill
from tests.support.broker.services import (
    DAY_SEC,
    new_assigner,
    new_broker,
    new_leases,
    new_reservations,
)
from tests.support.clocks import ManualClock


class Slow:
    """A prober that fails the sandboxes with these names, and answers each question when it may."""

    def __init__(self) -> None:
        self.sick: set[str] = set()
        self.asked: list[str] = []
        self.may_answer: list[asyncio.Event] = []
        """One for each question in turn; those after them are answered at once."""
        self.told: defaultdict[int, str | None] = defaultdict(lambda: None)
        """What the question of this number is told, whatever is asked about."""

    async def check(self, sandbox: Sandbox) -> str | None:
        number = len(self.asked)
        self.asked.append(sandbox.name)
        if number < len(self.may_answer):
            await self.may_answer[number].wait()
        is_sick = sandbox.name in self.sick
        return self.told[number] or ("connection refused" if is_sick else None)

    async def until_asked(self, times: int) -> None:
        async with asyncio.timeout(10):
            while len(self.asked) < times:
                await asyncio.sleep(0.005)

    async def close(self) -> None:
        pass


class Lab:
    def __init__(self, store: PoolStore, clock: ManualClock) -> None:
        self.store = store
        self.prober = Slow()
        self.clock = clock
        self.metrics = BrokerMetrics(CollectorRegistry())
        self.reservations = new_reservations(store, clock=clock)
        self.now = int(clock.now())
        self.use_deadline(30)

    def use_deadline(self, seconds: float) -> None:
        start_prober = partial(CallProber.start, self.prober, seconds)
        shared: Any = {"clock": self.clock, "metrics": self.metrics}
        self.leases = new_leases(
            self.store, **shared, lease_max_sec=LAB_SEC, begin_check=start_prober
        )
        checker = ClaimChecker(
            self.store,
            self.leases,
            start_prober,
            clock=self.clock,
            hold_sec=DAY_SEC,
            assigner=new_assigner(self.store, clock=self.clock),
        )
        self.broker = new_broker(self.store, **shared, check_claimed=checker.check)

    async def allocate(self) -> Lease:
        return (await self.broker.allocate(track_id="track")).lease

    async def lease_unprobed(self) -> Lease:
        """As a server leaves it that dies before it has probed."""
        claimed = await self.store.claim(Claim("track", "track", self.now))
        assert claimed is not None
        return claimed.lease

    async def row(self, lease: Lease) -> Sandbox:
        found = await self.store.find(lease.sandbox_id)
        assert isinstance(found, Sandbox)
        return found

    async def count(self, status: Status) -> int:
        return len([each for each in await everything(self.store) if each.status is status])

    async def check_all(self) -> None:
        await check_invariants(self.store)
        assert (await verify(self.store)).problems == []


@pytest.fixture
def lab(store: PoolStore, clock: ManualClock) -> Lab:
    return Lab(store, clock)


async def test_a_broken_one_is_swapped_for_one_that_passes(lab: Lab) -> None:
    await fill(lab.store, 3)
    first = await lab.lease_unprobed()
    lab.prober.sick = {first.name}
    told = await lab.allocate()
    assert told.name != first.name
    assert told.expires_at == first.expires_at
    held = await lab.row(first)
    assert (held.status, held.status_reason, held.replaced_by) == (
        Status.HELD,
        "probe at claim: connection refused",
        told.sandbox_id,
    )
    assert await lab.allocate() == told
    await lab.check_all()


async def test_another_is_such_a_one_as_was_asked_for(lab: Lab) -> None:
    await fill(lab.store, 9)
    await fill(lab.store, 2, prefix="gpu")
    booked = Booking(1, lab.now, lab.now + 3600, client="acme", name_prefix="gpu-00001")
    await lab.reservations.reserve(booked)
    lab.prober.sick = {"gpu-00000"}
    with pytest.raises(NoSandboxesAvailableError):
        await lab.broker.allocate(track_id="stranger", name_prefix="gpu-")
    await fill(lab.store, 1, prefix="gpu-more")
    lab.prober.sick = {"gpu-00001"}
    got = await lab.broker.allocate(track_id="track", name_prefix="gpu-", client="acme")
    assert got.lease.name == "gpu-more-00000"


async def test_where_none_is_left_the_lease_ends(lab: Lab) -> None:
    await fill(lab.store, 1)
    lab.prober.sick = {"lab-00000"}
    with pytest.raises(NoSandboxesAvailableError):
        await lab.allocate()
    assert await lab.count(Status.HELD) == 1
    assert await lab.store.find_lease("track", "track") is None
    await lab.check_all()


@pytest.mark.parametrize(("free", "tried"), [(3, 3), (9, 6)])
async def test_what_fails_and_is_free_is_neither_leased_nor_taken_out(
    lab: Lab, free: int, tried: int
) -> None:
    """The prober may be cut off; then the job `probe` would not empty the pool either."""
    await fill(lab.store, free)
    lab.prober.sick = {f"lab-{number:05}" for number in range(free)}
    with pytest.raises(ProbeDeadlineError):
        await lab.allocate()
    assert len(lab.prober.asked) == tried
    assert (await lab.count(Status.HELD), await lab.count(Status.AVAILABLE)) == (1, free - 1)
    assert await lab.store.find_lease("track", "track") is None
    await lab.check_all()


async def test_a_pool_that_was_not_tried_in_time_is_not_empty(lab: Lab) -> None:
    await fill(lab.store, 3)
    lab.use_deadline(0.05)
    lab.prober.may_answer = [asyncio.Event()]
    with pytest.raises(ProbeDeadlineError):
        await lab.allocate()
    assert (await lab.count(Status.HELD), await lab.count(Status.AVAILABLE)) == (1, 2)
    assert await lab.store.find_lease("track", "track") is None
    lab.use_deadline(30)
    assert (await lab.broker.allocate(track_id="track")).is_new
    await lab.check_all()


async def test_a_call_with_the_same_key_meanwhile_hears_of_no_other(lab: Lab) -> None:
    await fill(lab.store, 3)
    first, second = lab.prober.may_answer = [asyncio.Event(), asyncio.Event()]
    calls = [asyncio.create_task(lab.allocate())]
    await lab.prober.until_asked(1)
    [leased] = [each for each in await everything(lab.store) if each.status is Status.ALLOCATED]
    lab.prober.sick = {leased.name}
    calls.append(asyncio.create_task(lab.allocate()))
    await lab.prober.until_asked(2)
    first.set()
    told = await calls[0]
    second.set()
    assert await calls[1] == told
    assert told.sandbox_id != leased.sandbox_id
    assert (await lab.count(Status.HELD), await lab.count(Status.ALLOCATED)) == (1, 1)
    await lab.check_all()


async def test_what_one_call_was_told_no_other_takes_away(lab: Lab) -> None:
    await fill(lab.store, 3)
    lab.prober.may_answer = [asyncio.Event(), asyncio.Event()]
    lab.prober.told[0] = "connection refused"
    calls = [asyncio.create_task(lab.allocate()) for _ in range(2)]
    await lab.prober.until_asked(2)
    lab.prober.may_answer[1].set()
    done, _ = await asyncio.wait(calls, return_when=asyncio.FIRST_COMPLETED)
    told = done.pop().result()
    lab.prober.may_answer[0].set()
    assert [await each for each in calls] == [told, told]
    assert (await lab.row(told)).status is Status.ALLOCATED
    assert await lab.count(Status.HELD) == 0
    await lab.check_all()


async def test_a_lease_that_its_track_may_have_heard_of_is_left_alone(lab: Lab) -> None:
    await fill(lab.store, 3)
    lease = await lab.lease_unprobed()
    lab.prober.sick = {lease.name}
    lab.clock.advance(UNPROBED_SEC)
    assert await lab.allocate() == lease
    assert lab.prober.asked == []


async def test_a_track_that_asks_for_another_gets_one_that_passes(lab: Lab) -> None:
    await fill(lab.store, 3)
    lease = await lab.allocate()
    free = [each.name for each in await everything(lab.store) if each.status is Status.AVAILABLE]
    lab.prober.sick = {free[0]}
    asked = Replacement("track", "no network")
    other = await lab.leases.replace(lease.sandbox_id, asked)
    assert other.name == free[1]
    lab.prober.sick = {*free, lease.name}
    assert await lab.allocate() == other, "it has heard of it"
    with pytest.raises(ProbeDeadlineError):
        await lab.leases.replace(other.sandbox_id, asked)
    assert (await lab.row(other)).status is Status.ALLOCATED
    await lab.check_all()
