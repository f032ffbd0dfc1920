"""Taking over a table that another program, or an earlier version, filled by the same layout."""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from sandyard.broker.pool.model import Lease, Sandbox, Status, Tombstone
from sandyard.broker.pool.stores.dynamo_items import entry_of, lease_item, sandbox_key, sandbox_of
from sandyard.broker.stores.dynamo_table import PoolTable
from sandyard.kit.changes.events import actor
from sandyard.kit.changes.transitions import Cause, created
from sandyard.kit.clock import Clock
from sandyard.kit.dynamo.client import TransactionRefusedError
from sandyard.kit.dynamo.values import Item

_PARALLEL = 8


@dataclass(slots=True)
class AdoptionReport:
    allocations: int = 0
    leases_added: int = 0
    already_there: int = 0
    baselines_added: int = 0
    """Rows and tombstones without events that got a baseline event with their whole state."""
    duplicates: list[str] = field(default_factory=list)
    """Sandboxes whose track and key already have another one; they keep their owner and expire."""


async def adopt(pool: PoolTable, *, clock: Clock) -> AdoptionReport:
    """Give every running allocation its lease, and every row its sequence and first event.

    Idempotent; may run alongside claims that do not touch older rows. The other program allowed two
    sandboxes for one track and key. The last allocated one gets the lease, because retries would
    have returned it; the others are reported.
    """
    report = AdoptionReport()
    await pool.create_events()
    rows: list[Sandbox] = []
    async for items in pool.table.pages(
        index=pool.status_index,
        condition="#status = :status",
        values={"status": Status.ALLOCATED},
    ):
        rows += [sandbox_of(item) for item in items]
    for row in sorted(rows, key=lambda row: row.allocated_at, reverse=True):
        await _add_lease(pool, row, report)
    async for items in pool.table.scan():
        cause = Cause.by(actor("system"), clock)
        await _add_baselines(
            pool, [item for item in items if "sequence" not in item], cause, report
        )
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
        existing = refused.reasons[1].item
        if existing is None:
            return  # released while we read
        if existing["sandbox_id"] == row.sandbox_id:
            report.already_there += 1
        else:
            report.duplicates.append(row.sandbox_id)
    else:
        report.leases_added += 1


async def _add_baselines(
    pool: PoolTable, items: Sequence[Item], cause: Cause, report: AdoptionReport
) -> None:
    slots = asyncio.Semaphore(_PARALLEL)

    async def add(item: Item, entry: Sandbox | Tombstone) -> bool:
        async with slots:
            return await _add_baseline(pool, item, entry, cause)

    entries = [(item, entry_of(item)) for item in items]
    added = await asyncio.gather(
        *(add(item, e) for item, e in entries if isinstance(e, Sandbox | Tombstone))
    )
    report.baselines_added += sum(added)


async def _add_baseline(
    pool: PoolTable, item: Item, entry: Sandbox | Tombstone, cause: Cause
) -> bool:
    """False if it changed while we read, or another run was first."""
    [event] = created(entry, "baseline", cause).events
    same = [name for name in ("status", "updated_at", "idempotency_key") if name in item]
    values: dict[str, Any] = {name: item[name] for name in same}
    is_same = "".join(f" AND {'#' if name == 'status' else ''}{name} = :{name}" for name in same)
    try:
        await pool.table.transact(
            pool.table.update_action(
                {"PK": item["PK"], "SK": item["SK"]},
                "SET #sequence = :first",
                values | {"first": event.sequence},
                condition=f"attribute_exists(PK) AND attribute_not_exists(#sequence){is_same}",
            ),
            pool.events.put_action(event),
        )
    except TransactionRefusedError:
        return False
    return True
