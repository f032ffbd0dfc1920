"""The table of SPEC's calls: who may do what to a sandbox in which state, on every engine."""

import pytest
from prometheus_client import CollectorRegistry

from sandyard.broker.metrics import BrokerMetrics
from sandyard.broker.pool.action_model import Action
from sandyard.broker.pool.errors import (
    AllocationExpiredError,
    NoSandboxesAvailableError,
    NotSandboxOwnerError,
    SandboxNotFoundError,
    TransitionNotAllowedError,
)
from sandyard.broker.pool.lease_model import Replacement
from sandyard.broker.pool.model import TOMBSTONE_SECONDS, Sandbox, Status, decide_reserved
from sandyard.broker.pool.ports import PoolStore
from sandyard.broker.pool.provider_model import DeletionPolicy, decide_failed_deletion
from sandyard.broker.pool.service import Broker, Marked
from sandyard.broker.queue.service import QueuePosition
from sandyard.kit.changes.events import actor
from sandyard.kit.changes.transitions import Cause
from tests.support.broker.pools import (
    LAB_SEC,
    NOW,
    check_invariants,
    delete,
    everything,
    fill,
    operator,
    row,
)
from tests.support.broker.services import new_leases
from tests.support.clocks import ManualClock

UNKNOWN = "0b6cf0dc-9ad5-5c8e-8a2b-6d1f3f9fd2b1"


@pytest.fixture
async def sandbox_id(broker: Broker, store: PoolStore) -> str:
    """A sandbox that `owner` has just leased."""
    await fill(store, 1)
    return (await broker.allocate(track_id="owner")).lease.sandbox_id


async def remove(store: PoolStore, sandbox_id: str, clock: ManualClock) -> None:
    sandbox = await row(store, sandbox_id)
    assert await delete(store, sandbox, int(clock.now()))


async def fail_deletion(store: PoolStore, sandbox_id: str) -> None:
    sandbox = await row(store, sandbox_id)
    policy = DeletionPolicy(max_attempts=1, backoff_base_sec=1, backoff_max_sec=1)
    change = decide_failed_deletion(sandbox, policy, jitter=0, cause=operator(sandbox.updated_at))
    assert await store.apply([change]) == [True]


async def test_an_empty_pool_says_whether_any_sandbox_has_such_a_name(
    store: PoolStore, broker: Broker
) -> None:
    await fill(store, 1, prefix="gpu")
    with pytest.raises(NoSandboxesAvailableError, match="begins with tpu-") as refused:
        await broker.allocate(track_id="track", name_prefix="tpu-")
    assert refused.value.details == {"name_prefix": "tpu-"}
    await broker.allocate(track_id="track", name_prefix="gpu-")
    with pytest.raises(NoSandboxesAvailableError, match="No sandbox is free"):
        await broker.allocate(track_id="other", name_prefix="gpu-")


async def test_a_ticket_and_a_refused_replacement_say_that_no_sandbox_has_such_a_name(
    store: PoolStore, broker: Broker, clock: ManualClock
) -> None:
    await fill(store, 1, prefix="gpu")
    leases = new_leases(
        store, clock=clock, metrics=BrokerMetrics(CollectorRegistry()), lease_max_sec=LAB_SEC
    )
    lease = (await broker.allocate(track_id="track")).lease
    for prefix, message in (("tpu-", "begins with tpu-"), ("gpu-", "No sandbox is free")):
        wanted = Replacement("track", "broken", prefix)
        with pytest.raises(NoSandboxesAvailableError, match=message):
            await leases.replace(lease.sandbox_id, wanted)
    waits = await broker.queue(track_id="other", name_prefix="gpu-")
    assert isinstance(waits, QueuePosition)
    assert waits.message is None
    waits = await broker.queue(track_id="typo", name_prefix="tpu-")
    assert isinstance(waits, QueuePosition)
    assert waits.message == "No sandbox of the pool has a name that begins with tpu-."


async def test_mark_in_the_window_sends_it_to_deletion(
    broker: Broker, sandbox_id: str, clock: ManualClock
) -> None:
    clock.advance(LAB_SEC - 1)
    marked = await broker.mark_for_deletion(track_id="owner", sandbox_id=sandbox_id)
    assert marked == Marked(sandbox_id, "pending_deletion", int(clock.now()))
    seen = await broker.get_sandbox(track_id="owner", sandbox_id=sandbox_id)
    assert seen.status is Status.PENDING_DELETION


async def test_mark_at_the_exact_end_is_too_late_but_get_works(
    broker: Broker, sandbox_id: str, clock: ManualClock
) -> None:
    clock.advance(LAB_SEC)
    with pytest.raises(AllocationExpiredError):
        await broker.mark_for_deletion(track_id="owner", sandbox_id=sandbox_id)
    seen = await broker.get_sandbox(track_id="owner", sandbox_id=sandbox_id)
    assert seen.status is Status.ALLOCATED
    with pytest.raises(NotSandboxOwnerError):
        await broker.mark_for_deletion(track_id="other", sandbox_id=sandbox_id)


async def test_mark_repeated_answers_the_same_whatever_happened_since(
    broker: Broker, store: PoolStore, sandbox_id: str, clock: ManualClock
) -> None:
    first = await broker.mark_for_deletion(track_id="owner", sandbox_id=sandbox_id)
    clock.advance(2 * LAB_SEC)
    assert await broker.mark_for_deletion(track_id="owner", sandbox_id=sandbox_id) == first
    await fail_deletion(store, sandbox_id)
    again = await broker.mark_for_deletion(track_id="owner", sandbox_id=sandbox_id)
    assert again == Marked(sandbox_id, "deletion_failed", first.deletion_requested_at)
    await broker.act(Action.RETRY_DELETION, sandbox_id=sandbox_id)
    assert await broker.mark_for_deletion(track_id="owner", sandbox_id=sandbox_id) == first
    await remove(store, sandbox_id, clock)
    gone = await broker.mark_for_deletion(track_id="owner", sandbox_id=sandbox_id)
    assert gone == Marked(sandbox_id, "deleted", first.deletion_requested_at)
    with pytest.raises(SandboxNotFoundError):
        await broker.get_sandbox(track_id="owner", sandbox_id=sandbox_id)
    clock.advance(TOMBSTONE_SECONDS)
    with pytest.raises(SandboxNotFoundError):
        await broker.mark_for_deletion(track_id="owner", sandbox_id=sandbox_id)


async def test_mark_after_an_operator_released_it_changes_nothing(
    broker: Broker, sandbox_id: str, clock: ManualClock
) -> None:
    released_at = int(clock.now())
    await broker.act(Action.RELEASE, sandbox_id=sandbox_id)
    clock.advance(10)
    marked = await broker.mark_for_deletion(track_id="owner", sandbox_id=sandbox_id)
    assert marked == Marked(sandbox_id, "pending_deletion", released_at)


@pytest.mark.parametrize("state", ["allocated", "pending_deletion", "deletion_failed"])
async def test_another_track_is_refused_in_every_state(
    broker: Broker, store: PoolStore, sandbox_id: str, state: str
) -> None:
    if state != "allocated":
        await broker.mark_for_deletion(track_id="owner", sandbox_id=sandbox_id)
    if state == "deletion_failed":
        await fail_deletion(store, sandbox_id)
    with pytest.raises(NotSandboxOwnerError):
        await broker.mark_for_deletion(track_id="other", sandbox_id=sandbox_id)
    with pytest.raises(NotSandboxOwnerError):
        await broker.get_sandbox(track_id="other", sandbox_id=sandbox_id)


async def test_the_removed_and_the_unknown_are_not_found_by_others(
    broker: Broker, store: PoolStore, sandbox_id: str, clock: ManualClock
) -> None:
    await broker.mark_for_deletion(track_id="owner", sandbox_id=sandbox_id)
    await remove(store, sandbox_id, clock)
    for missing in (sandbox_id, UNKNOWN, "no-uuid", "nul\0", "x" * 500, "", "ü"):
        with pytest.raises(SandboxNotFoundError):
            await broker.mark_for_deletion(track_id="other", sandbox_id=missing)
        with pytest.raises(SandboxNotFoundError):
            await broker.get_sandbox(track_id="other", sandbox_id=missing)
        with pytest.raises(SandboxNotFoundError):
            await broker.inspect_sandbox(missing)
        with pytest.raises(SandboxNotFoundError):
            await broker.act(Action.RELEASE, sandbox_id=missing)


async def test_what_nobody_has_is_nobodys(broker: Broker, store: PoolStore) -> None:
    await fill(store, 1)
    [free] = await everything(store)
    for _ in ("available", "stale"):
        with pytest.raises(NotSandboxOwnerError):
            await broker.mark_for_deletion(track_id="owner", sandbox_id=free.sandbox_id)
        with pytest.raises(NotSandboxOwnerError):
            await broker.get_sandbox(track_id="owner", sandbox_id=free.sandbox_id)
        await broker.act(
            Action.QUARANTINE, sandbox_id=free.sandbox_id
        ) if _ == "available" else None


async def test_an_empty_pool_is_told_with_a_time_to_come_back(broker: Broker) -> None:
    with pytest.raises(NoSandboxesAvailableError) as told:
        await broker.allocate(track_id="track")
    assert told.value.retry_after


async def test_the_key_defaults_to_the_track(broker: Broker, store: PoolStore) -> None:
    await fill(store, 2)
    first = await broker.allocate(track_id="track")
    again = await broker.allocate(track_id="track", idempotency_key="track")
    assert not again.is_new
    assert again.lease == first.lease


OPERATOR_MOVES = {
    Action.QUARANTINE: {Status.AVAILABLE: Status.STALE, Status.RESERVED: Status.STALE},
    Action.RESTORE: {Status.STALE: Status.AVAILABLE, Status.HELD: Status.AVAILABLE},
    Action.RELEASE: {
        Status.ALLOCATED: Status.PENDING_DELETION,
        Status.STALE: Status.PENDING_DELETION,
        Status.HELD: Status.PENDING_DELETION,
    },
    Action.RETRY_DELETION: {Status.DELETION_FAILED: Status.PENDING_DELETION},
}


async def in_state(status: Status, broker: Broker, store: PoolStore) -> Sandbox:
    await fill(store, 1)
    [entry] = await everything(store)
    if status is Status.STALE:
        await broker.act(Action.QUARANTINE, sandbox_id=entry.sandbox_id)
    elif status is Status.HELD:
        await broker.hold(sandbox_id=entry.sandbox_id, reason="to look at")
    elif status is Status.RESERVED:
        cause = Cause(actor("system"), NOW * 1000)
        assert all(await store.apply([decide_reserved(entry, "a ticket", cause)]))
    elif status is not Status.AVAILABLE:
        await broker.allocate(track_id="owner")
        if status is not Status.ALLOCATED:
            await broker.mark_for_deletion(track_id="owner", sandbox_id=entry.sandbox_id)
        if status is Status.DELETION_FAILED:
            await fail_deletion(store, entry.sandbox_id)
    return await row(store, entry.sandbox_id)


@pytest.mark.parametrize("status", list(Status))
@pytest.mark.parametrize("action", list(Action))
async def test_an_operator_may_do_just_what_the_states_allow(
    broker: Broker, store: PoolStore, action: Action, status: Status
) -> None:
    before = await in_state(status, broker, store)
    assert before.status is status
    to = OPERATOR_MOVES[action].get(status)
    if to is None:
        with pytest.raises(TransitionNotAllowedError, match=f"{action} .* {status}"):
            await broker.act(action, sandbox_id=before.sandbox_id)
        assert await row(store, before.sandbox_id) == before
    else:
        after = await broker.act(action, sandbox_id=before.sandbox_id)
        assert after.status is to
        assert await row(store, before.sandbox_id) == after
        assert after.deletion_retry_count == 0
    await check_invariants(store)
