"""Taking over a table that another program filled by the same layout, without leases."""

from dataclasses import dataclass, field

from sandyard.broker.model import Lease, Sandbox, Status
from sandyard.broker.stores.dynamo_items import lease_item, sandbox_key, sandbox_of
from sandyard.broker.stores.dynamo_table import PoolTable
from sandyard.kit.dynamo import TransactionRefusedError


@dataclass(slots=True)
class AdoptionReport:
    allocations: int = 0
    leases_added: int = 0
    already_there: int = 0
    duplicates: list[str] = field(default_factory=list)
    """Sandboxes whose track and key already have another one; they keep their owner and expire."""


async def adopt(pool: PoolTable) -> AdoptionReport:
    """Give every running allocation its lease. Can be run twice, and while traffic flows.

    The other program let a track and key have two sandboxes. The one that was allocated last is
    the one that its retries would have answered: it gets the lease, and the others are reported.
    """
    report = AdoptionReport()
    rows: list[Sandbox] = []
    async for items in pool.table.pages(
        index=pool.status_index,
        condition="#status = :status",
        values={"status": Status.ALLOCATED},
    ):
        rows += [sandbox_of(item) for item in items]
    for row in sorted(rows, key=lambda row: row.allocated_at, reverse=True):
        await _add_lease(pool, row, report)
    await pool.mark_layout()
    return report


async def _add_lease(pool: PoolTable, row: Sandbox, report: AdoptionReport) -> None:
    report.allocations += 1
    track, end = row.allocated_to_track, row.expires_at
    if track is None or end is None:
        return
    key = row.idempotency_key or track
    lease = Lease(row.sandbox_id, row.name, row.external_id, row.allocated_at, end)
    item = lease_item(track, key, lease) | {"write_id": f"adopted-{row.sandbox_id}"}
    try:
        await pool.table.transact(
            pool.table.update_action(
                sandbox_key(row.sandbox_id),
                "SET idempotency_key = :key",
                {"allocated": Status.ALLOCATED, "track": track, "key": key},
                condition="#status = :allocated AND allocated_to_track = :track",
            ),
            pool.table.put_action(item, condition="attribute_not_exists(PK)"),
        )
    except TransactionRefusedError as refused:
        standing = refused.reasons[1].item
        if standing is None:
            return  # it was given up while we looked
        if standing["sandbox_id"] == row.sandbox_id:
            report.already_there += 1
        else:
            report.duplicates.append(row.sandbox_id)
    else:
        report.leases_added += 1
