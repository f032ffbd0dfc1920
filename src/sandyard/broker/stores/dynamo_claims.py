"""Claims on DynamoDB: one transaction each, for a candidate of the reservoir."""

import uuid
from collections.abc import Callable, Collection, Mapping
from typing import Any

from sandyard.broker.model import Claim, Claimed, Lease, Status, lab_seconds
from sandyard.broker.stores.dynamo_items import lease_item, lease_key, lease_of, sandbox_key
from sandyard.broker.stores.dynamo_table import PoolTable
from sandyard.broker.stores.reservoir import Candidate, Reservoir
from sandyard.broker.stores.walk import Places, Walk
from sandyard.kit.clock import Clock
from sandyard.kit.dynamo import TransactionRefusedError, within
from sandyard.kit.dynamo_values import Item
from sandyard.kit.jobs_dynamo import DynamoJobLeases

_DEADLINE_SEC = 10.0  # longer than one call may take, so that a call tells why it failed
_RESERVOIRS = 256


def new_write_id() -> str:
    """A name for one write, by which its second arrival is told from somebody else's."""
    return uuid.uuid4().hex


class DynamoClaims:
    def __init__(
        self,
        pool: PoolTable,
        *,
        clock: Clock,
        reservoir_size: int,
        on_conflict: Callable[[], None],
    ) -> None:
        self._pool = pool
        self._table = pool.table
        self._reservoir_size = reservoir_size
        self._on_conflict = on_conflict
        self._places = Places(DynamoJobLeases(pool.table), clock)
        self._reservoirs: dict[str, Reservoir] = {}

    async def claim(self, claim: Claim) -> Claimed | None:
        async with within(_DEADLINE_SEC):
            reservoir = self._reservoir(claim.name_prefix)
            if reservoir.was_empty and (repeat := await self._find_live(claim)):
                return repeat
            write_id = new_write_id()
            while (candidate := await reservoir.take()) is not None:
                claimed = await self._try(claim, write_id, candidate, reservoir)
                if claimed is not None:
                    return claimed
            return await self._find_live(claim)

    async def _try(
        self, claim: Claim, write_id: str, candidate: Candidate, reservoir: Reservoir
    ) -> Claimed | None:
        """Lease this candidate, or find the lease that stands in the way; None if it was lost."""
        held: Item | None = None
        while True:
            try:
                lease = await self._write_lease(claim, write_id, candidate, held)
            except TransactionRefusedError as refused:
                row, standing = refused.reasons[0], refused.reasons[1]
                held = standing.item if standing.is_condition else held
                if held is not None and held.get("write_id") == write_id:
                    reservoir.claimed(candidate)  # our own write, whose answer was lost
                    return Claimed(lease_of(held), is_new=True)
                if held is not None and lease_of(held).is_live(claim.now):
                    (reservoir.lost if row.is_condition else reservoir.unused)(candidate)
                    return Claimed(lease_of(held), is_new=False)
                if row.is_condition:
                    self._on_conflict()
                    reservoir.lost(candidate)
                    return None
                if len(refused.reasons) > 2 and refused.reasons[2].is_condition:
                    held = {**(held or {}), "ended": True}  # its row is no longer allocated
            except BaseException:
                reservoir.lost(candidate)  # it may or may not be ours now: a retry finds out
                raise
            else:
                reservoir.claimed(candidate)
                return Claimed(lease, is_new=True)

    async def _write_lease(
        self, claim: Claim, write_id: str, candidate: Candidate, held: Item | None
    ) -> Lease:
        """The claim: one transaction, which also ends the expired lease `held`, if there is one."""
        end = claim.now + lab_seconds(candidate.lab_duration_hours)
        lease = Lease(candidate.sandbox_id, candidate.name, candidate.external_id, claim.now, end)
        take = self._table.update_action(
            sandbox_key(candidate.sandbox_id),
            "SET #status = :allocated, allocated_to_track = :track, idempotency_key = :key, "
            "allocated_at = :now, updated_at = :now"
            + (", track_name = :label" if claim.track_name else ""),
            {
                "allocated": Status.ALLOCATED,
                "available": Status.AVAILABLE,
                "track": claim.track_id,
                "key": claim.key,
                "now": claim.now,
                "label": claim.track_name,
            },
            condition="#status = :available",
        )
        item = lease_item(claim.track_id, claim.key, lease) | {"write_id": write_id}
        if held is None:
            put = self._table.put_action(item, condition="attribute_not_exists(PK)")
            await self._table.transact(take, put)
            return lease
        put = self._table.put_action(
            item,
            condition="attribute_not_exists(PK) OR write_id = :old",
            values={"old": held["write_id"]},
        )
        ends = [] if "ended" in held else [self._end_expired(claim, held["sandbox_id"])]
        await self._table.transact(take, put, *ends)
        return lease

    def _end_expired(self, claim: Claim, sandbox_id: str) -> Mapping[str, Any]:
        return self._table.update_action(
            sandbox_key(sandbox_id),
            "SET #status = :pending, deletion_requested_at = :now, next_attempt_at = :now, "
            "updated_at = :now, deletion_retry_count = :zero",
            {
                "pending": Status.PENDING_DELETION,
                "allocated": Status.ALLOCATED,
                "track": claim.track_id,
                "key": claim.key,
                "now": claim.now,
                "zero": 0,
            },
            condition="#status = :allocated AND allocated_to_track = :track "
            "AND idempotency_key = :key",
        )

    async def _find_live(self, claim: Claim) -> Claimed | None:
        item = await self._table.get(lease_key(claim.track_id, claim.key))
        if item is None or not (lease := lease_of(item)).is_live(claim.now):
            return None
        return Claimed(lease, is_new=False)

    def _reservoir(self, prefix: str) -> Reservoir:
        if prefix not in self._reservoirs:
            if len(self._reservoirs) > _RESERVOIRS:
                self._reservoirs.clear()
            self._reservoirs[prefix] = Reservoir(
                Walk(self._pool, prefix, self._places),
                still_free=self._still_free,
                size=self._reservoir_size,
            )
        return self._reservoirs[prefix]

    async def _still_free(self, sandbox_ids: Collection[str]) -> set[str]:
        items = await self._table.get_many([sandbox_key(each) for each in sandbox_ids])
        return {i["sandbox_id"] for i in items if i["status"] == Status.AVAILABLE}
