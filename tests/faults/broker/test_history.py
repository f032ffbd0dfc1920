"""The checker of histories finds what stores without the lease's condition do wrong."""

import asyncio
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack
from dataclasses import asdict, replace
from typing import Any, Protocol

import pytest

from sandyard.broker.pool.model import Claim, Claimed, HeldLease, Lease, Sandbox, Status, Tombstone
from sandyard.broker.pool.stores.dynamo_items import lease_item, sandbox_key
from sandyard.broker.reservations.model import Reservation
from sandyard.broker.stores.dynamo_table import PoolTable
from sandyard.broker.stores.dynamodb import DynamoPoolStore
from sandyard.kit.dynamo.client import ConditionFailedError
from sandyard.kit.dynamo.values import Item
from tests.faults.history import Attempt, History, check, kinds
from tests.faults.pool_contents import Entry, Stock, stock_of
from tests.faults.proxy import FaultProxy
from tests.faults.stores import store_at, table_at
from tests.support.broker.pools import LAB_SEC, fill
from tests.support.storage.engines import PATIENT

NOW = 1_800_000_000


class Claims(Protocol):
    async def claim(self, claim: Claim) -> Claimed | None: ...


class IndexTrustingStore:
    """Claims as a plan without leases has them: ask an index for the key, then take a row."""

    def __init__(
        self, pool: PoolTable, *, writes_leases: bool = False, minds_owner: bool = True
    ) -> None:
        self._pool = pool
        self._writes_leases = writes_leases
        self._minds_owner = minds_owner

    async def claim(self, claim: Claim) -> Claimed | None:
        names, table = self._pool.names, self._pool.table
        found, _, _ = await table.query(
            index=names.idempotency_index,
            condition="idempotency_key = :key",
            values={"key": claim.key},
            limit=1,
        )
        if found:
            return Claimed(_lease(found[0], found[0]["allocated_at"]), is_new=False)
        free, _, _ = await table.query(
            index=names.status_index,
            condition="#status = :status",
            values={"status": Status.AVAILABLE},
        )
        for row in free:
            if await self._take(row, claim):
                return Claimed(_lease(row, claim.now), is_new=True)
        return None

    async def _take(self, row: Item, claim: Claim) -> bool:
        table = self._pool.table
        values = {
            "allocated": Status.ALLOCATED,
            "track": claim.track_id,
            "key": claim.key,
            "now": claim.now,
        }
        try:
            await table.update(
                sandbox_key(row["sandbox_id"]),
                "SET #status = :allocated, allocated_to_track = :track, "
                "idempotency_key = :key, allocated_at = :now",
                values | ({"available": Status.AVAILABLE} if self._minds_owner else {}),
                condition="#status = :available" if self._minds_owner else None,
            )
        except ConditionFailedError:
            return False
        if self._writes_leases:
            lease = _lease(row, claim.now)
            await table.put(lease_item(claim.track_id, claim.key, lease))
        return True


def _lease(row: Item, at: int) -> Lease:
    return Lease(row["sandbox_id"], row["name"], row["external_id"], at, at + LAB_SEC)


async def allocate(history: History, store: Claims, track: str) -> None:
    sent_at = time.time()
    claimed = await store.claim(Claim(track, track, int(sent_at)))
    status, body = 409, {"error": {"code": "NO_SANDBOXES_AVAILABLE"}}
    if claimed is not None:
        status, body = 201 if claimed.is_new else 200, asdict(claimed.lease)
    history.add(
        Attempt("allocate", sent_at, time.time(), status, track=track, key=track, body=body)
    )


async def quick_retries(stores: Sequence[Claims]) -> History:
    """Tracks that ask again at once, each time another replica."""
    history = History()

    async def insist(track: str) -> None:
        for store in stores:
            await allocate(history, store, track)

    await asyncio.gather(*(insist(f"track-{number}") for number in range(15)))
    return history


class TestStores:
    @pytest.fixture
    async def tables(
        self, proxy: FaultProxy, pool: PoolTable, direct: DynamoPoolStore
    ) -> AsyncIterator[list[PoolTable]]:
        """Two replicas' ways to a full pool whose index lags."""
        await fill(direct, 60)
        proxy.set(index_lag_sec=5)
        async with AsyncExitStack() as stack:
            yield [
                await stack.enter_async_context(table_at(proxy.url, pool, policy=PATIENT))
                for _ in range(2)
            ]

    async def test_ours_has_no_problem(
        self, proxy: FaultProxy, pool: PoolTable, direct: DynamoPoolStore
    ) -> None:
        await fill(direct, 60)
        proxy.set(index_lag_sec=5)
        async with (
            store_at(proxy.url, pool, policy=PATIENT) as one,
            store_at(proxy.url, pool, policy=PATIENT) as other,
        ):
            history = await quick_retries([one, other])
        assert check(history, await stock_of(direct)) == []

    @pytest.mark.parametrize("writes_leases", [False, True])
    async def test_one_that_trusts_an_index_gives_a_key_two_sandboxes(
        self, tables: list[PoolTable], direct: DynamoPoolStore, *, writes_leases: bool
    ) -> None:
        stores = [IndexTrustingStore(table, writes_leases=writes_leases) for table in tables]
        history = await quick_retries(stores)
        found = kinds(check(history, await stock_of(direct)))
        assert {"two live sandboxes", "allocated without a lease"} <= found

    async def test_one_that_does_not_look_gives_a_sandbox_two_owners(
        self, tables: list[PoolTable], direct: DynamoPoolStore
    ) -> None:
        stores = [IndexTrustingStore(table, minds_owner=False) for table in tables]
        history = await quick_retries(stores)
        assert "two owners" in kinds(check(history, await stock_of(direct)))


def lease_body(number: int, *, at: int = NOW) -> dict[str, Any]:
    return asdict(Lease(f"s{number}", f"lab-{number}", f"e{number}", at, at + LAB_SEC))


def told(number: int, track: str = "t", *, at: float = 1, status: int = 201) -> Attempt:
    body = lease_body(number)
    return Attempt("allocate", NOW + at, NOW + at + 0.1, status, track=track, key="k", body=body)


def row(number: int, status: Status, track: str | None = None) -> Sandbox:
    free = Sandbox(
        sandbox_id=f"s{number}",
        name=f"lab-{number}",
        external_id=f"e{number}",
        status=status,
        lab_duration_hours=4,
        created_at=NOW - 1000,
        updated_at=NOW - 1000,
    )
    if track is None:
        return free
    return replace(free, allocated_to_track=track, idempotency_key="k", allocated_at=NOW)


def lease(number: int, track: str = "t") -> HeldLease:
    return HeldLease(track, "k", Lease(**lease_body(number)))


def gone(number: int, track: str = "t") -> Tombstone:
    return Tombstone(f"s{number}", f"e{number}", track, NOW + 5, NOW + 6, NOW + 1000)


TOLD = told(1)
KEPT: list[Entry] = [row(1, Status.ALLOCATED, "t"), lease(1)]
MARK = Attempt("mark", NOW + 5, NOW + 6, 200, track="t", sandbox_id="s1")
HOLD = Attempt("hold", NOW + 5, NOW + 6, 200, sandbox_id="s1")
EMPTY = Attempt(
    "allocate", NOW, NOW, 409, track="x", body={"error": {"code": "NO_SANDBOXES_AVAILABLE"}}
)
REPLACED = Attempt(
    *("replace", NOW + 5, NOW + 6, 200),
    track="t",
    key="k",
    sandbox_id="s1",
    body=lease_body(2),
)
RESERVATION = Reservation("r1", 2, NOW - 1000, NOW + 1000, NOW - 1000, track_prefix="course-")


def extended(*, key: str = "more", by: int = 60, status: int = 200) -> Attempt:
    body = lease_body(1) | {"expires_at": NOW + LAB_SEC + by}
    return Attempt(
        "extend", NOW + 5, NOW + 6, status, track="t", key=key, sandbox_id="s1", body=body
    )


def reserved(number: int) -> Sandbox:
    """A sandbox that is kept for the reservation."""
    kept = row(number, Status.RESERVED)
    return replace(kept, reserved_for="r1", reservation_id="r1")


@pytest.mark.parametrize(
    ("attempts", "entries"),
    [
        pytest.param([TOLD], KEPT, id="kept"),
        pytest.param([TOLD, told(1, at=3, status=200)], KEPT, id="repeated"),
        pytest.param([TOLD, MARK], [row(1, Status.PENDING_DELETION, "t")], id="given up"),
        pytest.param([TOLD, MARK], [gone(1)], id="deleted"),
        pytest.param(
            [TOLD, MARK, told(2, at=7)],
            [gone(1), row(2, Status.ALLOCATED, "t"), lease(2)],
            id="asked again after giving up",
        ),
        pytest.param(
            [TOLD, replace(MARK, status=None)], [gone(1)], id="given up without an answer"
        ),
        pytest.param([TOLD, replace(MARK, status=None)], KEPT, id="a request that got lost"),
        pytest.param([EMPTY], [row(1, Status.STALE)], id="really empty"),
        pytest.param(
            [TOLD, REPLACED],
            [row(1, Status.HELD, "t"), row(2, Status.ALLOCATED, "t"), lease(2)],
            id="replaced",
        ),
        pytest.param(
            [
                *(TOLD, REPLACED),
                replace(extended(), body=lease_body(2) | {"expires_at": NOW + LAB_SEC + 60}),
                replace(REPLACED, sandbox_id="s2", body=lease_body(3)),
                replace(REPLACED, body=lease_body(3)),
            ],
            [
                *(row(1, Status.HELD, "t"), row(2, Status.HELD, "t")),
                *(row(3, Status.ALLOCATED, "t"), lease(3)),
            ],
            id="extended by its first name and replaced twice",
        ),
        pytest.param([TOLD, HOLD], [row(1, Status.HELD, "t")], id="held by an operator"),
        pytest.param([TOLD, extended()], KEPT, id="extended"),
        pytest.param([EMPTY], [reserved(1), RESERVATION], id="kept for others"),
    ],
)
def test_what_may_be_is_no_problem(attempts: list[Attempt], entries: list[Entry]) -> None:
    assert check(History(attempts), Stock.of(entries), longest_sec=LAB_SEC + 60) == []


@pytest.mark.parametrize(
    ("attempts", "entries", "problem"),
    [
        pytest.param([TOLD], [], "lost", id="no trace"),
        pytest.param([TOLD], [row(1, Status.AVAILABLE)], "lost", id="free again"),
        pytest.param([TOLD], [gone(1)], "lost", id="deleted unasked"),
        pytest.param([TOLD, MARK], KEPT, "lost", id="mark forgotten"),
        pytest.param([TOLD, MARK], [gone(1, "other")], "lost", id="tombstone of another"),
        pytest.param([TOLD, told(1, "u", at=2)], KEPT, "two owners", id="two owners"),
        pytest.param([TOLD, told(1, at=2)], KEPT, "called new 2 times", id="new twice"),
        pytest.param(
            [TOLD, replace(told(1, at=2, status=200), body=lease_body(1, at=NOW + 1))],
            KEPT,
            "two answers for ('t', 'k')",
            id="another body",
        ),
        pytest.param(
            [TOLD, told(2, at=2), replace(MARK, sandbox_id="s2")],
            [*KEPT, gone(2)],
            "two live sandboxes",
            id="two at once, one of them given up later",
        ),
        pytest.param([], KEPT[:1], "allocated without a lease", id="row alone"),
        pytest.param([], KEPT[1:], "a lease without its allocated row", id="lease alone"),
        pytest.param([], [row(1, Status.AVAILABLE), gone(1)], "back after its deletion", id="back"),
        pytest.param(
            [EMPTY], [row(1, Status.AVAILABLE)], "called empty while 1 were free", id="not empty"
        ),
        pytest.param(
            [TOLD, extended(by=120)], KEPT, "extended more often than asked", id="extended twice"
        ),
        pytest.param(
            [TOLD, extended(by=60), extended(key="again", by=120)],
            KEPT,
            "extended past its bound",
            id="too long",
        ),
        pytest.param(
            [TOLD, replace(extended(), track="u")], KEPT, "a stranger was let in", id="extender"
        ),
        pytest.param(
            [TOLD, extended(status=404)], KEPT, "an owner was turned away", id="no extension"
        ),
        pytest.param([], [reserved(1)], "kept for nobody", id="kept for nobody"),
        pytest.param(
            [replace(EMPTY, track="course-1")],
            [reserved(1), RESERVATION],
            "called empty while 1 were free",
            id="not empty for its tracks",
        ),
        pytest.param([TOLD, REPLACED], KEPT, "lost", id="replaced and still allocated"),
        pytest.param(
            [TOLD], [row(1, Status.HELD, "t")], "lost", id="held though nobody replaced it"
        ),
        pytest.param([replace(MARK, status=500)], [], "answered 500  to mark", id="500"),
        pytest.param(
            [TOLD, replace(MARK, track="u")], [gone(1)], "a stranger was let in", id="stranger"
        ),
        pytest.param(
            [TOLD, replace(MARK, status=404)], [gone(1)], "an owner was turned away", id="owner"
        ),
    ],
)
def test_what_cannot_be_is_found(
    attempts: list[Attempt], entries: list[Entry], problem: str
) -> None:
    found = check(History(attempts), Stock.of(entries), longest_sec=LAB_SEC + 60)
    assert problem in kinds(found)


def test_a_sandbox_in_use_that_the_provider_has_not_is_found() -> None:
    stock = Stock.of(KEPT)
    assert check(History([TOLD]), stock, listed=["e1"]) == []
    assert kinds(check(History([TOLD]), stock, listed=["e2"])) == {"back after its deletion"}
