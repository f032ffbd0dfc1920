"""Operators' listings: filters that combine, and histories, on every engine."""

import pytest

from sandyard.broker.pool.errors import SandboxNotFoundError
from sandyard.broker.pool.model import TOMBSTONE_SECONDS, Claim, Sandbox, Status
from sandyard.broker.pool.ports import PoolStore, SandboxFilter, Sort, pages_of
from sandyard.broker.pool.service import Broker
from sandyard.broker.stores.sql import SqlPoolStore
from sandyard.kit.paging import InvalidCursorError
from sandyard.kit.sql.database import Database
from tests.support.broker.pools import NOW, delete, ended, fill, row
from tests.support.clocks import ManualClock


async def listed(
    store: PoolStore,
    *,
    status: Status | None = None,
    track: str | None = None,
    name_prefix: str = "",
    search: str = "",
    limit: int = 3,
) -> list[Sandbox]:
    found: list[Sandbox] = []
    cursor = None
    while True:
        where = SandboxFilter(status, track, name_prefix, search)
        page = await store.page(where, limit=limit, cursor=cursor)
        found += page.items
        cursor = page.next_cursor
        if cursor is None:
            assert len({each.sandbox_id for each in found}) == len(found)
            return found


@pytest.fixture
async def pool(store: PoolStore) -> PoolStore:
    """Free ones of two names; of track `a` five: three leased, one given up, one deleted."""
    await fill(store, 8, prefix="aws")
    await fill(store, 8, prefix="azure")
    for number in range(5):
        claimed = await store.claim(Claim("a", f"k{number}", NOW + number, name_prefix="aws"))
        assert claimed is not None
        if number < 2:
            given_up = ended(await row(store, claimed.lease.sandbox_id))
            assert await store.apply([given_up]) == [True]
            if number == 0:
                assert await delete(store, given_up.result)
    assert await store.claim(Claim("b", "k", NOW, name_prefix="azure")) is not None
    return store


async def test_by_track_has_all_that_it_has_or_had_last(pool: PoolStore) -> None:
    rows = await listed(pool, track="a")
    assert {each.allocated_to_track for each in rows} == {"a"}
    assert sorted(each.status for each in rows) == ["allocated"] * 3 + ["pending_deletion"]
    assert len(await listed(pool, track="a", limit=1)) == 4
    assert await listed(pool, track="nobody") == []


async def test_by_name_goes_through_all_states(pool: PoolStore) -> None:
    rows = await listed(pool, name_prefix="aws")
    assert len(rows) == 7
    assert all(each.name.startswith("aws") for each in rows)
    assert len(await listed(pool, name_prefix="a")) == 15
    assert await listed(pool, name_prefix="gcp") == []


async def test_on_sql_a_listing_is_sorted_by_name_over_all_states(database: Database) -> None:
    store = SqlPoolStore(database)
    await fill(store, 6)
    for number in (4, 1, 3):
        claim = Claim(
            f"t{number}", "k", NOW, name_prefix=f"lab-0000{number}", lease_sec=number * 60
        )
        assert await store.claim(claim) is not None
    names = [f"lab-0000{number}" for number in range(6)]
    by_end = [*("lab-00001", "lab-00003", "lab-00004"), *("lab-00000", "lab-00002", "lab-00005")]
    for limit in (1, 2, 5, 100):
        in_order = await sorted_names(store, Sort.NAME, limit)
        assert in_order == names
        assert await sorted_names(store, Sort.NAME_DESCENDING, limit) == names[::-1]
        assert await sorted_names(store, Sort.EXPIRES_AT, limit) == by_end
        last_first = [*by_end[2::-1], *by_end[:2:-1]]
        assert await sorted_names(store, Sort.EXPIRES_AT_DESCENDING, limit) == last_first


async def sorted_names(store: PoolStore, sort: Sort, limit: int) -> list[str]:
    return [
        each.name
        async for rows in pages_of(store, SandboxFilter(sort=sort), size=limit)
        for each in rows
    ]


async def test_a_page_is_sorted(pool: PoolStore) -> None:
    for sort in Sort:
        page = await pool.page(SandboxFilter(Status.AVAILABLE, sort=sort), limit=100, cursor=None)
        names = [each.name for each in page.items]
        assert names == sorted(names, reverse=sort.is_descending)
    soonest = SandboxFilter(sort=Sort.EXPIRES_AT)
    ends = [each.expires_at for each in (await pool.page(soonest, limit=4, cursor=None)).items]
    assert len(ends) == 4


async def test_filters_combine(pool: PoolStore) -> None:
    assert len(await listed(pool, track="a", status=Status.ALLOCATED)) == 3
    assert len(await listed(pool, track="a", name_prefix="aws")) == 4
    assert await listed(pool, track="a", name_prefix="azure") == []
    assert len(await listed(pool, status=Status.AVAILABLE, name_prefix="azure")) == 7
    one = await listed(pool, track="a", status=Status.PENDING_DELETION, name_prefix="aws", limit=1)
    assert len(one) == 1


async def test_a_search_finds_ids_tracks_and_names(pool: PoolStore) -> None:
    assert len(await listed(pool, search="azure")) == 8
    [one] = await listed(pool, search="azure", status=Status.ALLOCATED)
    assert await listed(pool, search=one.sandbox_id) == [one]
    assert await listed(pool, search=one.sandbox_id, status=Status.AVAILABLE) == []
    assert one in await listed(pool, search="b")
    assert one not in await listed(pool, search="b", name_prefix="aws")
    assert await listed(pool, search="gcp or nobody") == []


async def test_what_a_search_finds_twice_is_listed_once(pool: PoolStore) -> None:
    """All names begin with `a`, and a track is called so."""
    for limit in (1, 3, 100):
        assert len(await listed(pool, search="a", limit=limit)) == 15
    assert len(await listed(pool, search="a", track="a")) == 4
    assert len(await listed(pool, search="a", status=Status.ALLOCATED)) == 4


async def test_on_sql_a_search_finds_how_ids_and_tracks_begin(database: Database) -> None:
    store = SqlPoolStore(database)
    await fill(store, 40)
    tracks = ("dns-101-ann", "dns-101-bob", "dns-2:zz", "dns_zzz", "Dns-101-cy", "dns", "zz")
    for track in tracks:
        assert await store.claim(Claim(track, "key", NOW)) is not None
    for prefix in ("dns-101", "dns-", "dns", "dns-2:z", "D", "z", "zz", "zzz"):
        found = await listed(store, search=prefix)
        begin_so = {track for track in tracks if track.startswith(prefix)}
        assert {each.allocated_to_track for each in found} == begin_so
    every = await listed(store)
    for length in (1, 2, 9, 14, 35):
        prefix = every[0].sandbox_id[:length]
        begin_so = {each.sandbox_id for each in every if each.sandbox_id.startswith(prefix)}
        assert {each.sandbox_id for each in await listed(store, search=prefix)} == begin_so


async def test_a_cursor_of_another_filter_is_refused(pool: PoolStore) -> None:
    page = await pool.page(SandboxFilter(track="a"), limit=1, cursor=None)
    with pytest.raises(InvalidCursorError):
        await pool.page(SandboxFilter(track="b"), limit=1, cursor=page.next_cursor)
    with pytest.raises(InvalidCursorError):
        await pool.page(SandboxFilter(), limit=1, cursor=page.next_cursor)


async def test_a_history_stays_when_the_sandbox_and_its_tombstone_are_gone(
    broker: Broker, store: PoolStore, clock: ManualClock
) -> None:
    await fill(store, 1)
    sandbox_id = (await broker.allocate(track_id="owner")).lease.sandbox_id
    await broker.mark_for_deletion(track_id="owner", sandbox_id=sandbox_id)
    assert await delete(store, await row(store, sandbox_id), int(clock.now()))
    await store.drop_tombstones(now=NOW + TOMBSTONE_SECONDS)
    page = await broker.get_history(sandbox_id, limit=10, cursor=None)
    told = [(each.event.kind, each.event.actor, each.event.reason) for each in page.items]
    assert told == [
        ("sandbox.deleted", "job:cleanup", None),
        ("lease.ended", "track:owner", "released by its track"),
        ("lease.created", "track:owner", None),
        ("sandbox.discovered", "job:sync", None),
    ]
    with pytest.raises(SandboxNotFoundError):
        await broker.get_history("unknown", limit=10, cursor=None)
