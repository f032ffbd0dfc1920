"""Pools for the tests, and looks at them from outside."""

import asyncio
from collections.abc import AsyncIterator, Sequence

from sandyard.broker.pool.action_model import Action, decide_action
from sandyard.broker.pool.model import Claim, Claimed, Listed, Sandbox, Status, Tombstone
from sandyard.broker.pool.ports import PoolStore
from sandyard.broker.pool.provider_model import decide_deleted, decide_discovery
from sandyard.kit.changes.transitions import Cause, Transition, changed
from sandyard.kit.changes.verification import differences

NOW = 1_800_000_000
LAB_SEC = 4 * 3600


def operator(now: int) -> Cause:
    return Cause("operator", now * 1000)


def discoveries(
    count: int, *, prefix: str = "lab", hours: float = 4, now: int = NOW
) -> list[Transition[Sandbox]]:
    return [
        decide_discovery(
            Listed(f"ext-{prefix}-{number}", f"{prefix}-{number:05}"),
            lab_duration_hours=hours,
            cause=Cause("job:sync", now * 1000),
        )
        for number in range(count)
    ]


def free_sandboxes(count: int, *, prefix: str = "lab", hours: float = 4) -> list[Sandbox]:
    return [each.result for each in discoveries(count, prefix=prefix, hours=hours)]


async def fill(store: PoolStore, count: int, *, prefix: str = "lab", hours: float = 4) -> None:
    applied = await store.apply(discoveries(count, prefix=prefix, hours=hours))
    assert sum(applied) == count


def ended(sandbox: Sandbox, now: int = NOW) -> Transition[Sandbox]:
    """It goes to deletion, in whatever state it is."""
    return changed(
        sandbox, sandbox.sent_to_deletion(now), "lease.ended", operator(now).because("released")
    )


def quarantined(sandbox: Sandbox, now: int = NOW) -> Transition[Sandbox]:
    return decide_action(sandbox, Action.QUARANTINE, operator(now))


def restored(sandbox: Sandbox, now: int = NOW) -> Transition[Sandbox]:
    return decide_action(sandbox, Action.RESTORE, operator(now))


def deleted(sandbox: Sandbox, now: int = NOW) -> Transition[Sandbox | Tombstone]:
    return decide_deleted(sandbox, Cause("job:cleanup", now * 1000))


async def delete(store: PoolStore, sandbox: Sandbox, now: int = NOW) -> bool:
    return (await store.apply([deleted(sandbox, now)]))[0]


async def row(store: PoolStore, sandbox_id: str) -> Sandbox:
    found = await store.find(sandbox_id)
    assert isinstance(found, Sandbox)
    return found


async def rows_of(pages: AsyncIterator[Sequence[Sandbox]]) -> list[Sandbox]:
    return [row async for page in pages for row in page]


async def everything(store: PoolStore) -> list[Sandbox]:
    return await rows_of(store.everything())


async def check_invariants(store: PoolStore) -> None:
    """No lease twice, every allocated row with its owner, and counts that match the rows."""
    rows = await everything(store)
    allocated = [entry for entry in rows if entry.status is Status.ALLOCATED]
    keys = [(entry.allocated_to_track, entry.idempotency_key) for entry in allocated]
    assert len(keys) == len(set(keys)), "a track and key with two leases"
    for entry in allocated:
        assert entry.allocated_to_track
        assert entry.idempotency_key
        assert entry.allocated_at > 0
    for entry in rows:
        if entry.status in (Status.AVAILABLE, Status.STALE):
            assert entry.allocated_at == 0
            assert entry.allocated_to_track is None
    assert (await store.counts()).by_status == count_states(rows)
    await check_history(store)


async def check_history(store: PoolStore) -> None:
    """Every row and tombstone is what its events fold into."""
    async for entries in store.audit():
        there = [each for each in entries if isinstance(each, Sandbox | Tombstone)]
        events = await store.events.state_events([each.sandbox_id for each in there])
        for each in there:
            assert differences(each, events[each.sandbox_id]) == []


def count_states(rows: Sequence[Sandbox]) -> dict[Status, int]:
    return {status: sum(entry.status is status for entry in rows) for status in Status}


async def claims(store: PoolStore, *tracks: str, now: int = NOW) -> list[Claimed | None]:
    """Of all tracks at once, each with the same key."""
    return await asyncio.gather(*(store.claim(Claim(track, "key", now)) for track in tracks))


def ids_of(claimed: Sequence[Claimed | None]) -> list[str]:
    return [each.lease.sandbox_id for each in claimed if each]
