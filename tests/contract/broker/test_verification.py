"""`verify` finds nothing in a sound pool, and every kind of harm in a damaged one."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from dataclasses import replace

import pytest

from sandyard.broker.pool.model import (
    Claim,
    HeldLease,
    Lease,
    Sandbox,
    Status,
    Tombstone,
)
from sandyard.broker.pool.ports import PoolStore
from sandyard.broker.verification import verify
from tests.support.broker.pools import NOW, delete, ended, fill, row


async def test_a_sound_pool_has_no_problems(store: PoolStore) -> None:
    await fill(store, 30)
    for n in range(20):
        assert await store.claim(Claim(f"t{n}", "k", NOW))
    lease = await store.find_lease("t3", "k")
    assert lease is not None
    sandbox = await row(store, lease.sandbox_id)
    await store.apply([ended(sandbox)])
    await delete(store, ended(sandbox).result)
    report = await verify(store)
    assert (report.rows, report.leases, report.tombstones) == (29, 19, 1)
    assert report.problems == []


async def test_a_pool_that_changes_meanwhile_has_no_problems(store: PoolStore) -> None:
    await fill(store, 200)

    async def traffic() -> None:
        for n in range(150):
            claimed = await store.claim(Claim(f"t{n}", "k", NOW))
            assert claimed is not None
            if n % 2:
                sandbox = await row(store, claimed.lease.sandbox_id)
                await store.apply([ended(sandbox)])

    busy = asyncio.create_task(traffic())
    while not busy.done():
        assert (await verify(store)).problems == []
    await busy


class Damaged:
    """A store that tells of one damage; everything else is as in the real one."""

    def __init__(self, store: PoolStore, sandbox: Sandbox, harm: str) -> None:
        self._store = store
        self._sandbox = sandbox
        self._harm = harm

    def __getattr__(self, name: str) -> object:
        return getattr(self._store, name)

    async def audit(self) -> AsyncIterator[Sequence[Sandbox | HeldLease | Tombstone]]:
        async for entries in self._store.audit():
            yield [changed for entry in entries for changed in self._entries(entry)]

    def _entries(
        self, entry: Sandbox | HeldLease | Tombstone
    ) -> list[Sandbox | HeldLease | Tombstone]:
        if isinstance(entry, Sandbox) and entry.sandbox_id == self._sandbox.sandbox_id:
            return [self._row(entry)]
        lost = isinstance(entry, HeldLease) and self._harm == "no lease"
        return [] if lost else [entry]

    def _row(self, entry: Sandbox) -> Sandbox:
        match self._harm:
            case "free with owner":
                return replace(entry, status=Status.AVAILABLE)
            case "lease without row":
                return replace(
                    entry, status=Status.AVAILABLE, allocated_at=0, allocated_to_track=None
                )
            case "other window":
                return replace(entry, allocated_at=entry.allocated_at + 1)
            case "not told":
                return replace(entry, track_name="nobody told of this")
            case "no time":
                return replace(entry, status=Status.PENDING_DELETION)
            case _:
                return entry

    async def find(self, sandbox_id: str) -> Sandbox | Tombstone | None:
        found = await self._store.find(sandbox_id)
        return self._row(found) if isinstance(found, Sandbox) else found

    async def find_lease(self, track_id: str, key: str) -> Lease | None:
        gone = self._harm in ("no lease", "free with owner", "no time")
        return None if gone else await self._store.find_lease(track_id, key)


@pytest.mark.parametrize(
    ("harm", "words"),
    [
        ("no lease", "without a lease"),
        ("free with owner", "has an owner"),
        ("lease without row", "its row says"),
        ("other window", "disagree"),
        ("no time", "without the time"),
        ("not told", "is not what its events lead to: track_name"),
    ],
)
async def test_every_harm_is_found(store: PoolStore, harm: str, words: str) -> None:
    await fill(store, 3)
    claimed = await store.claim(Claim("t", "k", NOW))
    assert claimed is not None
    sandbox = await row(store, claimed.lease.sandbox_id)
    damaged = Damaged(store, sandbox, harm)
    report = await verify(damaged)  # type: ignore[arg-type]
    assert {problem.subject for problem in report.problems} == {sandbox.sandbox_id}
    assert words in report.problems[0].message
