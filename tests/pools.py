"""Pools for the tests, and looks at them from outside."""

from collections.abc import Sequence

from sandyard.broker.model import Listed, Sandbox, Status
from sandyard.broker.ports import PoolStore

NOW = 1_800_000_000
LAB_SEC = 4 * 3600


def free_sandboxes(count: int, *, prefix: str = "lab", hours: float = 4) -> list[Sandbox]:
    return [
        Sandbox.discovered(
            Listed(f"ext-{prefix}-{number}", f"{prefix}-{number:05}"),
            lab_duration_hours=hours,
            now=NOW,
        )
        for number in range(count)
    ]


async def fill(store: PoolStore, count: int, *, prefix: str = "lab", hours: float = 4) -> None:
    added = await store.add(free_sandboxes(count, prefix=prefix, hours=hours))
    assert added == count


async def row(store: PoolStore, sandbox_id: str) -> Sandbox:
    found = await store.find(sandbox_id)
    assert isinstance(found, Sandbox)
    return found


async def everything(store: PoolStore) -> list[Sandbox]:
    return [entry async for page in store.everything() for entry in page]


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
    assert await store.counts() == count_states(rows)


def count_states(rows: Sequence[Sandbox]) -> dict[Status, int]:
    return {status: sum(entry.status is status for entry in rows) for status in Status}
