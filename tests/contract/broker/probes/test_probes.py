"""Probes: what fails them leaves the pool and comes back when it passes, on every engine."""

import pytest
from prometheus_client import CollectorRegistry

from sandyard.broker.metrics import BrokerMetrics
from sandyard.broker.pool.action_model import Action
from sandyard.broker.pool.model import Sandbox, StaleReason, Status
from sandyard.broker.pool.ports import PoolStore
from sandyard.broker.probes.service import ProbeJob, ProbeReport
from sandyard.broker.reservations.model import Booking
from sandyard.broker.verification import verify
from tests.support.broker.pools import check_invariants, everything, fill
from tests.support.broker.services import new_assigner, new_broker, new_reservations
from tests.support.clocks import ManualClock

THRESHOLD = 3


class Sick:
    """A prober that fails the sandboxes with these names."""

    def __init__(self) -> None:
        self.names: set[str] = set()
        self.asked: list[str] = []

    async def check(self, sandbox: Sandbox) -> str | None:
        self.asked.append(sandbox.name)
        return "connection refused" if sandbox.name in self.names else None

    async def close(self) -> None:
        pass


class Ward:
    def __init__(self, store: PoolStore, clock: ManualClock) -> None:
        self.store = store
        self.sick = Sick()
        metrics = BrokerMetrics(CollectorRegistry())
        self.broker = new_broker(store, clock=clock, metrics=metrics)
        self.probes = ProbeJob(
            store,
            self.sick,
            clock=clock,
            threshold=THRESHOLD,
            parallel=4,
            assigner=new_assigner(store, clock=clock),
        )
        self.reservations = new_reservations(store, clock=clock)
        self.now = int(clock.now())

    async def row(self, name: str) -> Sandbox:
        [found] = [each for each in await everything(self.store) if each.name == name]
        return found

    async def fails(self, *names: str) -> None:
        """They fail as often as it takes."""
        self.sick.names = set(names)
        for _ in range(THRESHOLD):
            report = await self.probes.run()
        assert report.quarantined == len(names)


@pytest.fixture
def ward(store: PoolStore, clock: ManualClock) -> Ward:
    return Ward(store, clock)


async def test_one_that_fails_often_enough_leaves_and_comes_back(ward: Ward) -> None:
    await fill(ward.store, 3)
    ward.sick.names = {"lab-00001"}
    for _ in range(THRESHOLD - 1):
        assert await ward.probes.run() == ProbeReport(probed=3, failed=1)
        assert (await ward.row("lab-00001")).status is Status.AVAILABLE
    assert (await ward.probes.run()).quarantined == 1
    out = await ward.row("lab-00001")
    assert (out.status, out.stale_reason) == (Status.STALE, StaleReason.QUARANTINED)
    assert out.status_reason == "probe: connection refused"
    assert await ward.probes.run() == ProbeReport(probed=3, failed=1)
    ward.sick.names = set()
    assert (await ward.probes.run()).restored == 1
    back = await ward.row("lab-00001")
    assert (back.status, back.status_reason, back.probe_failures) == (Status.AVAILABLE, None, 0)
    await check_invariants(ward.store)
    assert (await verify(ward.store)).problems == []


async def test_only_failures_in_a_row_count(ward: Ward) -> None:
    await fill(ward.store, 1)
    for _ in range(2):
        ward.sick.names = {"lab-00000"}
        for _ in range(THRESHOLD - 1):
            await ward.probes.run()
        ward.sick.names = set()
        await ward.probes.run()
    assert (await ward.row("lab-00000")).status is Status.AVAILABLE


async def test_leased_ones_are_left_alone_and_an_operators_quarantine_stays(ward: Ward) -> None:
    await fill(ward.store, 2)
    leased = (await ward.broker.allocate(track_id="track")).lease
    [free] = [each for each in await everything(ward.store) if each.status is Status.AVAILABLE]
    await ward.broker.act(Action.QUARANTINE, sandbox_id=free.sandbox_id)
    assert (await ward.probes.run()).probed == 0
    assert ward.sick.asked == []
    assert (await ward.row(leased.name)).status is Status.ALLOCATED
    assert (await ward.row(free.name)).status is Status.STALE


async def test_a_prober_that_is_cut_off_does_not_empty_the_pool(ward: Ward) -> None:
    await fill(ward.store, 10)
    ward.sick.names = {f"lab-{n:05}" for n in range(10)}
    reports = [await ward.probes.run() for _ in range(THRESHOLD)]
    assert (reports[-1].quarantined, reports[-1].held_back) == (0, 10)
    assert (await ward.store.counts()).by_status[Status.AVAILABLE] == 10


async def test_a_reservation_gets_another_for_one_that_fails(ward: Ward) -> None:
    await fill(ward.store, 3)
    asked = Booking(1, ward.now, ward.now + 3600, "course-")
    reserved, _ = await ward.reservations.reserve(asked)
    [kept] = [each for each in await everything(ward.store) if each.reserved_for]
    await ward.fails(kept.name)
    await ward.reservations.maintain()
    [other] = [each for each in await everything(ward.store) if each.reserved_for]
    assert other.name != kept.name
    assert (await ward.reservations.get(reserved.reservation_id)).missing == 0
