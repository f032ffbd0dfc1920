"""What every PoolStore promises, on every engine."""

from dataclasses import replace

import pytest

from sandyard.broker.pool.model import (
    TOMBSTONE_SECONDS,
    Claim,
    Claimed,
    Lease,
    Sandbox,
    Status,
    Tombstone,
)
from sandyard.broker.pool.ports import PoolStore, SandboxFilter
from sandyard.kit.paging import InvalidCursorError
from tests.support.broker.pools import (
    LAB_SEC,
    NOW,
    check_invariants,
    delete,
    deleted,
    discoveries,
    ended,
    everything,
    fill,
    free_sandboxes,
    quarantined,
    restored,
    row,
    rows_of,
)


async def claim(store: PoolStore, track: str, *, now: int = NOW, prefix: str = "") -> Lease:
    claimed = await store.claim(Claim(track, track, now, name_prefix=prefix))
    assert claimed is not None
    return claimed.lease


async def allocated(store: PoolStore, track: str, *, now: int = NOW) -> Sandbox:
    return await row(store, (await claim(store, track, now=now)).sandbox_id)


class TestClaim:
    async def test_an_empty_pool_has_nothing(self, store: PoolStore) -> None:
        assert await store.claim(Claim("track", "key", NOW)) is None

    async def test_takes_a_free_sandbox_and_says_all_about_it(self, store: PoolStore) -> None:
        [free] = free_sandboxes(1)
        await fill(store, 1)
        claimed = await store.claim(Claim("track", "key", NOW, track_name="intro"))
        assert claimed == Claimed(
            Lease(free.sandbox_id, free.name, free.external_id, NOW, NOW + LAB_SEC), is_new=True
        )
        stored = await row(store, free.sandbox_id)
        assert stored == replace(
            free,
            status=Status.ALLOCATED,
            allocated_to_track="track",
            idempotency_key="key",
            track_name="intro",
            allocated_at=NOW,
            ends_at=NOW + LAB_SEC,
            updated_at=NOW,
            sequence=free.sequence + 1,
        )
        await check_invariants(store)

    async def test_a_repeat_finds_the_same_lease_also_in_an_empty_pool(
        self, store: PoolStore
    ) -> None:
        await fill(store, 1)
        first = await store.claim(Claim("track", "key", NOW))
        again = await store.claim(Claim("track", "key", NOW + LAB_SEC - 1))
        assert first is not None
        assert again == Claimed(first.lease, is_new=False)

    async def test_the_key_is_scoped_to_the_track(self, store: PoolStore) -> None:
        await fill(store, 3)
        sandboxes = {
            (await store.claim(Claim(track, key, NOW))).lease.sandbox_id  # type: ignore[union-attr]
            for track, key in [("a", "k"), ("b", "k"), ("a", "other")]
        }
        assert len(sandboxes) == 3

    async def test_a_lease_ends_at_its_exact_instant(self, store: PoolStore) -> None:
        await fill(store, 2)
        first = await claim(store, "track")
        assert await claim(store, "track", now=first.expires_at - 1) == first
        second = await claim(store, "track", now=first.expires_at)
        assert second.sandbox_id != first.sandbox_id
        assert second.allocated_at == first.expires_at
        ended = await row(store, first.sandbox_id)
        assert ended.status is Status.PENDING_DELETION
        assert ended.deletion_requested_at == first.expires_at
        await check_invariants(store)

    async def test_an_expired_lease_stays_while_nothing_else_is_free(
        self, store: PoolStore
    ) -> None:
        await fill(store, 1)
        lease = await claim(store, "track")
        assert await store.claim(Claim("track", "track", lease.expires_at)) is None
        assert (await row(store, lease.sandbox_id)).status is Status.ALLOCATED
        await check_invariants(store)

    async def test_each_row_has_its_own_length(self, store: PoolStore) -> None:
        await fill(store, 1, hours=0.5)
        lease = await claim(store, "track")
        assert lease.expires_at == NOW + 1800

    async def test_a_prefix_narrows_the_choice(self, store: PoolStore) -> None:
        await fill(store, 2, prefix="aws")
        await fill(store, 2, prefix="azure")
        assert (await claim(store, "one", prefix="azure-00001")).name == "azure-00001"
        assert (await claim(store, "two", prefix="az")).name == "azure-00000"
        assert await store.claim(Claim("three", "three", NOW, name_prefix="azure")) is None
        assert await store.claim(Claim("three", "three", NOW, name_prefix="gcp")) is None
        assert (await claim(store, "three")).name.startswith("aws")

    @pytest.mark.parametrize("prefix", ["lab%", "lab_", "LAB", "~", "lab-00000x"])
    async def test_a_prefix_is_taken_to_the_letter(self, store: PoolStore, prefix: str) -> None:
        await fill(store, 1)
        assert await store.claim(Claim("track", "track", NOW, name_prefix=prefix)) is None

    async def test_only_available_rows_are_given_out(self, store: PoolStore) -> None:
        await fill(store, 1)
        [free] = await everything(store)
        stale = quarantined(free)
        assert await store.apply([stale]) == [True]
        assert await store.claim(Claim("track", "track", NOW)) is None
        assert await store.apply([restored(stale.result)]) == [True]
        assert await store.claim(Claim("track", "track", NOW)) is not None


class TestApply:
    async def test_leaving_allocated_ends_the_lease(self, store: PoolStore) -> None:
        await fill(store, 2)
        sandbox = await allocated(store, "track")
        assert await store.apply([ended(sandbox, NOW + 1)]) == [True]
        again = await store.claim(Claim("track", "track", NOW + 2))
        assert again is not None
        assert again.is_new
        assert again.lease.sandbox_id != sandbox.sandbox_id
        await check_invariants(store)

    async def test_a_change_decided_from_an_older_state_is_lost(self, store: PoolStore) -> None:
        await fill(store, 1)
        [free] = await everything(store)
        lease = await claim(store, "track")
        assert await store.apply([quarantined(free)]) == [False]
        assert (await row(store, lease.sandbox_id)).status is Status.ALLOCATED
        await check_invariants(store)

    async def test_one_of_another_sequence_is_lost(self, store: PoolStore) -> None:
        await fill(store, 1)
        sandbox = await allocated(store, "track")
        for sequence in (0, sandbox.sequence - 1, sandbox.sequence + 1):
            outdated = replace(sandbox, sequence=sequence)
            assert await store.apply([ended(outdated)]) == [False], sequence
        assert await row(store, sandbox.sandbox_id) == sandbox
        await check_invariants(store)

    async def test_of_two_from_the_same_state_one_is_applied(self, store: PoolStore) -> None:
        await fill(store, 1)
        sandbox = await allocated(store, "track")
        outcomes = await store.apply([ended(sandbox), ended(sandbox)])
        assert sorted(outcomes) == [False, True]
        await check_invariants(store)

    async def test_says_for_each_change_whether_it_was_made(self, store: PoolStore) -> None:
        await fill(store, 500)
        rows = await everything(store)
        lost = {(await claim(store, f"t{n}")).sandbox_id for n in range(7)}
        outcomes = await store.apply([quarantined(each) for each in rows])
        assert [r.sandbox_id not in lost for r in rows] == list(outcomes)
        await check_invariants(store)


class TestDeletion:
    async def test_leaves_a_tombstone_and_no_row(self, store: PoolStore) -> None:
        await fill(store, 1)
        given_up = ended(await allocated(store, "track"), NOW + 5)
        await store.apply([given_up])
        sandbox = given_up.result
        tombstone = deleted(sandbox, NOW + 9).after
        assert isinstance(tombstone, Tombstone)
        assert await delete(store, sandbox, NOW + 9)
        assert await store.find(sandbox.sandbox_id) == tombstone
        assert tombstone.allocated_to_track == "track"
        assert tombstone.deletion_requested_at == NOW + 5
        assert not await delete(store, sandbox, NOW + 9)
        assert (await store.page(SandboxFilter(), limit=10, cursor=None)).items == []
        await check_invariants(store)

    async def test_the_tombstoned_are_never_added_again_until_forgotten(
        self, store: PoolStore
    ) -> None:
        [found] = discoveries(1)
        free = found.result
        assert await store.apply([found]) == [True]
        tombstone = deleted(free).after
        assert isinstance(tombstone, Tombstone)
        assert await delete(store, free)
        late = discoveries(1, now=NOW + 60)
        assert await store.apply(late) == [False]
        await store.drop_tombstones(now=NOW + TOMBSTONE_SECONDS - 1)
        assert await store.apply(late) == [False]
        renewed = NOW + 2 * TOMBSTONE_SECONDS
        await store.renew_tombstones([free.sandbox_id], kept_until=renewed)
        await store.drop_tombstones(now=NOW + TOMBSTONE_SECONDS)
        assert await store.find(free.sandbox_id) == replace(tombstone, kept_until=renewed)
        assert await store.tombstoned([free.sandbox_id, "another"]) == {free.sandbox_id}
        await store.drop_tombstones(now=renewed)
        [again] = discoveries(1, now=renewed)
        assert await store.apply([again]) == [True]
        assert await store.find(free.sandbox_id) == again.result
        assert await delete(store, again.result, renewed)
        assert await store.find(free.sandbox_id) == deleted(again.result, renewed).after
        await check_invariants(store)

    async def test_a_row_that_changed_is_not_deleted(self, store: PoolStore) -> None:
        await fill(store, 1)
        [free] = await everything(store)
        await claim(store, "track")
        assert not await delete(store, free)


class TestAdd:
    async def test_twice_changes_nothing(self, store: PoolStore) -> None:
        assert sum(await store.apply(discoveries(450))) == 450
        assert sum(await store.apply(discoveries(460))) == 10
        await check_invariants(store)

    async def test_never_touches_a_row_in_use(self, store: PoolStore) -> None:
        await fill(store, 1)
        sandbox = await allocated(store, "track")
        assert await store.apply(discoveries(1)) == [False]
        assert await row(store, sandbox.sandbox_id) == sandbox

    async def test_listed_rows_are_noted_unless_in_use(self, store: PoolStore) -> None:
        await fill(store, 2)
        taken = await allocated(store, "track")
        everyone = [entry.sandbox_id for entry in await everything(store)]
        await store.confirm_listed(everyone, now=NOW + 60)
        synced = {e.sandbox_id: e.last_synced for e in await everything(store)}
        assert synced.pop(taken.sandbox_id) == NOW
        assert list(synced.values()) == [NOW + 60]


class TestDue:
    async def test_overdue_is_exact_to_the_second(self, store: PoolStore) -> None:
        await fill(store, 5)
        leases = [await claim(store, f"t{n}", now=NOW + n) for n in range(5)]
        third = leases[2].expires_at
        due = await rows_of(store.overdue(ended_by=third))
        assert {d.allocated_to_track for d in due} == {"t0", "t1", "t2"}
        assert await rows_of(store.overdue(ended_by=leases[0].expires_at - 1)) == []

    async def test_deletable_is_exact_to_the_second(self, store: PoolStore) -> None:
        await fill(store, 3)
        for number in range(3):
            sandbox = await allocated(store, f"t{number}")
            await store.apply([ended(sandbox, NOW + number)])
        due = await rows_of(store.deletable(now=NOW + 1))
        assert {d.allocated_to_track for d in due} == {"t0", "t1"}
        assert await rows_of(store.deletable(now=NOW - 1)) == []

    async def test_pages_of_the_due_have_each_once_also_while_they_change(
        self, store: PoolStore
    ) -> None:
        await fill(store, 12)
        for number in range(12):
            await claim(store, f"t{number}", now=NOW + number % 3)
        seen: list[str | None] = []
        async for page in store.overdue(ended_by=NOW + 2 * LAB_SEC, size=5):
            seen += [each.allocated_to_track for each in page]
            await store.apply([ended(each, NOW + LAB_SEC) for each in page])
        assert sorted(map(str, seen)) == sorted(f"t{n}" for n in range(12))
        async for page in store.deletable(now=NOW + LAB_SEC, size=5):
            for each in page:
                assert await delete(store, each, NOW + LAB_SEC)
        assert await everything(store) == []


class TestPages:
    @pytest.mark.parametrize("status", [None, Status.AVAILABLE])
    async def test_go_through_all_rows_once(self, store: PoolStore, status: Status | None) -> None:
        await fill(store, 23)
        seen: list[str] = []
        cursor = None
        while True:
            page = await store.page(SandboxFilter(status), limit=5, cursor=cursor)
            seen += [entry.sandbox_id for entry in page.items]
            cursor = page.next_cursor
            if cursor is None:
                break
        assert sorted(seen) == sorted(entry.sandbox_id for entry in free_sandboxes(23))

    async def test_filter_by_state(self, store: PoolStore) -> None:
        await fill(store, 3)
        lease = await claim(store, "track")
        page = await store.page(SandboxFilter(Status.ALLOCATED), limit=5, cursor=None)
        assert [entry.sandbox_id for entry in page.items] == [lease.sandbox_id]
        assert page.next_cursor is None

    async def test_a_foreign_cursor_is_refused(self, store: PoolStore) -> None:
        await fill(store, 3)
        page = await store.page(SandboxFilter(), limit=1, cursor=None)
        for status in (Status.AVAILABLE, Status.STALE):
            with pytest.raises(InvalidCursorError):
                await store.page(SandboxFilter(status), limit=1, cursor=page.next_cursor)


@pytest.mark.parametrize("claims", [150, pytest.param(600, marks=pytest.mark.torture)])
async def test_counts_stay_right_through_many_changes(store: PoolStore, claims: int) -> None:
    await fill(store, claims + 100)
    for number in range(claims):
        await claim(store, f"t{number}")
        if number % 100 == 0:
            await check_invariants(store)
    await check_invariants(store)
    assert (await store.counts()).by_status[Status.ALLOCATED] == claims
