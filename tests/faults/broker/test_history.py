"""The checker of histories finds what stores without the lease's condition do wrong."""

import asyncio
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack
from dataclasses import asdict, replace
from typing import Any, Protocol

import pytest

from sandyard.broker.model import Claim, Claimed, Lease, Status
from sandyard.broker.stores.dynamo_items import lease_item, sandbox_key
from sandyard.broker.stores.dynamo_table import PoolTable
from sandyard.broker.stores.dynamodb import DynamoPoolStore
from sandyard.kit.dynamo import ConditionFailedError
from sandyard.kit.dynamo_values import Item
from tests.engines import PATIENT
from tests.faults.history import Attempt, History, check, kinds
from tests.faults.proxy import FaultProxy
from tests.faults.stores import store_at, table_at, whole_table
from tests.pools import LAB_SEC, fill

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
        assert check(history, await whole_table(pool.table)) == []

    @pytest.mark.parametrize("writes_leases", [False, True])
    async def test_one_that_trusts_an_index_gives_a_key_two_sandboxes(
        self, tables: list[PoolTable], pool: PoolTable, *, writes_leases: bool
    ) -> None:
        stores = [IndexTrustingStore(table, writes_leases=writes_leases) for table in tables]
        history = await quick_retries(stores)
        found = kinds(check(history, await whole_table(pool.table)))
        assert {"two live sandboxes", "allocated without a lease"} <= found

    async def test_one_that_does_not_look_gives_a_sandbox_two_owners(
        self, tables: list[PoolTable], pool: PoolTable
    ) -> None:
        stores = [IndexTrustingStore(table, minds_owner=False) for table in tables]
        history = await quick_retries(stores)
        assert "two owners" in kinds(check(history, await whole_table(pool.table)))


def lease_body(number: int, *, at: int = NOW) -> dict[str, Any]:
    return asdict(Lease(f"s{number}", f"lab-{number}", f"e{number}", at, at + LAB_SEC))


def told(number: int, track: str = "t", *, at: float = 1, status: int = 201) -> Attempt:
    body = lease_body(number)
    return Attempt("allocate", NOW + at, NOW + at + 0.1, status, track=track, key="k", body=body)


def row(number: int, status: Status, track: str | None = None) -> Item:
    item: Item = {
        **sandbox_key(f"s{number}"),
        "sandbox_id": f"s{number}",
        "external_id": f"e{number}",
        "status": status,
        "allocated_at": NOW if track else 0,
        "created_at": NOW - 1000,
    }
    return item | ({"allocated_to_track": track, "idempotency_key": "k"} if track else {})


def lease(number: int, track: str = "t") -> Item:
    return lease_item(track, "k", Lease(**lease_body(number)))


def gone(number: int, track: str = "t") -> Item:
    return {"PK": f"GONE#s{number}", "SK": "META", "sandbox_id": f"s{number}", "owner": track}


TOLD = told(1)
KEPT = [row(1, Status.ALLOCATED, "t"), lease(1)]
MARK = Attempt("mark", NOW + 5, NOW + 6, 200, track="t", sandbox_id="s1")
EMPTY = Attempt(
    "allocate", NOW, NOW, 409, track="x", body={"error": {"code": "NO_SANDBOXES_AVAILABLE"}}
)


@pytest.mark.parametrize(
    ("attempts", "table"),
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
    ],
)
def test_what_may_be_is_no_problem(attempts: list[Attempt], table: list[Item]) -> None:
    assert check(History(attempts), table) == []


@pytest.mark.parametrize(
    ("attempts", "table", "problem"),
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
        pytest.param([replace(MARK, status=500)], [], "answered 500  to mark", id="500"),
        pytest.param(
            [TOLD, replace(MARK, track="u")], [gone(1)], "a stranger was let in", id="stranger"
        ),
        pytest.param(
            [TOLD, replace(MARK, status=404)], [gone(1)], "an owner was turned away", id="owner"
        ),
    ],
)
def test_what_cannot_be_is_found(attempts: list[Attempt], table: list[Item], problem: str) -> None:
    assert problem in kinds(check(History(attempts), table))


def test_a_sandbox_in_use_that_the_provider_has_not_is_found() -> None:
    assert check(History([TOLD]), KEPT, listed=["e1"]) == []
    assert kinds(check(History([TOLD]), KEPT, listed=["e2"])) == {"back after its deletion"}
