"""Claims on DynamoDB: one transaction each, for a candidate of the prefetch."""

import uuid
from collections.abc import Callable, Collection
from functools import partial

from sandyard.broker.pool.model import (
    Claim,
    Claimed,
    Lease,
    Sandbox,
    decide_claim,
    decide_superseded,
)
from sandyard.broker.pool.stores import dynamo_items
from sandyard.broker.pool.stores.dynamo_prefetch import CandidatePrefetch
from sandyard.broker.pool.stores.index_scan import IndexScan, Wanted
from sandyard.broker.stores.dynamo_table import PoolTable
from sandyard.kit.changes.transitions import Transition
from sandyard.kit.clock import Clock
from sandyard.kit.dynamo.client import TransactionRefusedError, within
from sandyard.kit.dynamo.replicas import DynamoReplicas
from sandyard.kit.dynamo.values import Item
from sandyard.kit.wired import wired

_DEADLINE_SEC = 10.0  # longer than one call may take, so that a call reports why it failed
_MOST_PREFETCHES = 256
REPLICAS_KEY = {"PK": "REPLICAS", "SK": "META"}
_NO_LEASE = "attribute_not_exists(PK)"


def new_write_id() -> str:
    return uuid.uuid4().hex


@wired
class DynamoClaims:
    pool: PoolTable
    clock: Clock
    prefetch_size: int
    on_conflict: Callable[[], None]

    def __post_init__(self) -> None:
        self._table = self.pool.table
        self._replicas = DynamoReplicas(self.pool.table, key=REPLICAS_KEY, clock=self.clock)
        self._share = (0, 1)
        self._prefetches: dict[Wanted, CandidatePrefetch] = {}

    async def start(self) -> None:
        """Take a share of the index, apart from those of the other processes."""
        await self._replicas.start()

    async def stop(self) -> None:
        await self._replicas.stop()

    async def claim(self, claim: Claim) -> Claimed | None:
        async with within(_DEADLINE_SEC):
            write_id = new_write_id()
            own = [Wanted(claim.name_prefix, each) for each in claim.reservations]
            for wanted in own:
                if self._prefetch(wanted).was_empty_recently:
                    continue  # checked again before the claim is refused
                if claimed := await self._claim(claim, write_id, wanted):
                    return claimed
            for wanted in (Wanted(claim.name_prefix), *own):
                if claimed := await self._claim(claim, write_id, wanted):
                    return claimed
            return await self._find_live(claim)

    async def _claim(self, claim: Claim, write_id: str, wanted: Wanted) -> Claimed | None:
        """A lease of a matching row; None if there was none since the call."""
        prefetch = self._prefetch(wanted)
        if prefetch.was_empty and (repeat := await self._find_live(claim)):
            return repeat
        while (candidate := await prefetch.take()) is not None:
            claimed = await self._try(claim, write_id, candidate, wanted)
            if claimed is not None:
                return claimed
        return None

    async def _try(
        self, claim: Claim, write_id: str, candidate: Sandbox, wanted: Wanted
    ) -> Claimed | None:
        """Lease this candidate, or find the lease of its key; None if the candidate was lost."""
        prefetch = self._prefetch(wanted)
        held: Item | None = None
        row = candidate
        while True:
            try:
                lease = await self._write_lease(claim, write_id, row, held)
            except TransactionRefusedError as refused:
                taken, existing = refused.reasons[0], refused.reasons[1]
                held = existing.item if existing.is_condition else held
                if held is not None and held.get("write_id") == write_id:
                    prefetch.claimed(candidate)  # our own write, whose response was lost
                    return Claimed(dynamo_items.lease_of(held), is_new=True)
                if held is not None and dynamo_items.lease_of(held).is_live(claim.now):
                    (prefetch.lost if taken.is_condition else prefetch.unused)(candidate)
                    return Claimed(dynamo_items.lease_of(held), is_new=False)
                if taken.is_condition:
                    newer = _newer_free(taken.item, row, wanted)
                    if newer is None:
                        self.on_conflict()
                        prefetch.lost(candidate)
                        return None
                    row = newer
            except BaseException:
                prefetch.lost(candidate)  # it may or may not be ours: a retry finds out
                raise
            else:
                prefetch.claimed(candidate)
                return Claimed(lease, is_new=True)

    async def _write_lease(
        self, claim: Claim, write_id: str, free: Sandbox, held: Item | None
    ) -> Lease:
        """The claim: one transaction, which also ends the expired lease `held`, if any."""
        claimed = decide_claim(free, claim)
        lease = claimed.result.lease
        item = dynamo_items.lease_item(claim.track_id, claim.key, lease) | {"write_id": write_id}
        put = self._table.put_action(
            item,
            condition=_NO_LEASE if held is None else f"{_NO_LEASE} OR write_id = :old",
            values=None if held is None else {"old": held["write_id"]},
        )
        ended = None if held is None else await self._find_expired(claim, held)
        actions = [self.pool.change_action(claimed), put]
        if ended is not None:
            actions.append(self.pool.change_action(ended))
        events = [*claimed.events, *(ended.events if ended else ())]
        await self._table.transact(*actions, *map(self.pool.events.put_action, events))
        return lease

    async def _find_expired(self, claim: Claim, held: Item) -> Transition[Sandbox] | None:
        """The change of the expired lease's sandbox, from its current state."""
        item = await self._table.get(dynamo_items.sandbox_key(held["sandbox_id"]))
        return None if item is None else decide_superseded(dynamo_items.sandbox_of(item), claim)

    async def _find_live(self, claim: Claim) -> Claimed | None:
        item = await self._table.get(dynamo_items.lease_key(claim.track_id, claim.key))
        if item is None or not (lease := dynamo_items.lease_of(item)).is_live(claim.now):
            return None
        return Claimed(lease, is_new=False)

    def _prefetch(self, wanted: Wanted) -> CandidatePrefetch:
        share = (self._replicas.rank, self._replicas.count)
        if share != self._share:  # the prefetched rows now belong to another share
            self._share = share
            for each in self._prefetches.values():
                each.forget_ready()
        if wanted not in self._prefetches:
            if len(self._prefetches) > _MOST_PREFETCHES:
                self._prefetches.clear()
            self._prefetches[wanted] = CandidatePrefetch(
                IndexScan(self.pool, wanted, self._replicas),
                still_free=partial(self._still_free, wanted),
                size=self.prefetch_size,
            )
        return self._prefetches[wanted]

    async def _still_free(self, wanted: Wanted, sandbox_ids: Collection[str]) -> set[str]:
        items = await self._table.get_many([dynamo_items.sandbox_key(each) for each in sandbox_ids])
        return {item["sandbox_id"] for item in items if wanted.matches(item)}


def _newer_free(item: Item | None, row: Sandbox, wanted: Wanted) -> Sandbox | None:
    """The current row, if it is still free and the index was merely outdated."""
    if item is None or not wanted.matches(item):
        return None
    newer = dynamo_items.sandbox_of(item)
    return newer if newer.sequence != row.sequence else None
