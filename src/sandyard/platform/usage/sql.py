"""Usage rows on SQLite or PostgreSQL, written inside the transactions of what they are about."""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from datetime import datetime
from decimal import Decimal
from typing import Any

import sqlalchemy as sa

from sandyard.platform.tables import sandbox_usage
from sandyard.platform.usage.model import ServiceType, Usage, cost_of

_column = sandbox_usage.c
_GIGABYTE = 10**9
_HOUR = 3600


def open_runtime(
    connection: sa.Connection, sandbox: Any, *, usage_id: str, rate: Decimal, started_at: datetime
) -> None:
    """The usage of a sandbox that runs from now on; `sandbox` is its row."""
    connection.execute(
        sandbox_usage.insert().values(
            **_about(sandbox, usage_id),
            service_type=ServiceType.RUNTIME,
            start_time=started_at,
            end_time=None,
            hourly_rate=rate,
            cpu=sandbox.cpu_spec,
            memory_gb=sandbox.memory_spec,
            created_at=started_at,
            **_consumed(0, 0, 0, 0),
            cost=Decimal(0),
            is_billed=False,
        )
    )


def close_runtime(
    connection: sa.Connection, sandbox_id: str, *, ended_at: datetime, reason: str
) -> None:
    """End the sandbox's open usage, if there is one, with what it came to."""
    found = sa.select(sandbox_usage).where(
        _column.sandbox_id == sandbox_id, _column.end_time.is_(None)
    )
    row = connection.execute(found.with_for_update()).first()
    if row is None:
        return
    usage = usage_of(row)
    ended_at = max(ended_at, usage.start_time)
    seconds = usage.seconds_until(ended_at)
    connection.execute(
        sandbox_usage.update()
        .where(_column.id == row.id)
        .values(
            end_time=ended_at,
            end_reason=reason[:255],
            cost=cost_of(seconds, usage.hourly_rate),
            **_consumed(seconds, usage.cpu, usage.memory_gb, 0),
        )
    )


def keep_storage(
    connection: sa.Connection, sandbox: Any, *, usage_id: str, rate: Decimal, until: datetime
) -> None:
    """What keeping the sandbox's snapshot came to since it was last counted, as a closed usage."""
    since = sandbox.storage_counted_until
    if sandbox.latest_snapshot_id is None or since is None or until <= since:
        return
    seconds = int(until.timestamp()) - int(since.timestamp())
    gigabytes = (sandbox.snapshot_bytes or 0) / _GIGABYTE
    connection.execute(
        sandbox_usage.insert().values(
            **_about(sandbox, usage_id),
            service_type=ServiceType.STORAGE,
            start_time=since,
            end_time=until,
            hourly_rate=rate,
            cpu=0,
            memory_gb=0,
            created_at=until,
            **_consumed(seconds, 0, 0, gigabytes),
            cost=cost_of(seconds, rate),
            is_billed=False,
        )
    )


def costs_of(
    connection: sa.Connection, *, sandbox_ids: Sequence[str], now: datetime
) -> Mapping[str, Decimal]:
    """What each sandbox has cost up to now, running and kept; by two statements for all of them."""
    if not sandbox_ids:
        return {}
    costs: dict[str, Decimal] = defaultdict(Decimal)
    closed = (
        sa.select(_column.sandbox_id, sa.func.sum(_column.cost, type_=_column.cost.type))
        .where(_column.sandbox_id.in_(sandbox_ids), _column.end_time.is_not(None))
        .group_by(_column.sandbox_id)
    )
    for sandbox_id, cost in connection.execute(closed):
        costs[sandbox_id] += cost
    running = sa.select(sandbox_usage).where(
        _column.sandbox_id.in_(sandbox_ids), _column.end_time.is_(None)
    )
    for row in connection.execute(running):
        costs[row.sandbox_id] += usage_of(row).cost_until(now)
    return costs


def usage_of(row: Any) -> Usage:
    return Usage(
        usage_id=row.usage_id,
        sandbox_id=row.sandbox_id,
        account_id=row.user_account_id,
        project_id=row.project_id,
        service_type=ServiceType(row.service_type),
        start_time=row.start_time,
        end_time=row.end_time,
        hourly_rate=row.hourly_rate,
        cpu=row.cpu,
        memory_gb=row.memory_gb,
        storage_gb=row.storage_gb,
    )


def _about(sandbox: Any, usage_id: str) -> dict[str, Any]:
    return {
        "usage_id": usage_id,
        "sandbox_id": sandbox.sandbox_id,
        "user_account_id": sandbox.owner_account_id,
        "project_id": sandbox.project_id,
    }


def _consumed(seconds: int, cpu: float, memory_gb: float, storage_gb: float) -> dict[str, Any]:
    hours = seconds / _HOUR
    return {
        "running_seconds": seconds if cpu or memory_gb else 0,
        "cpu_hours": cpu * hours,
        "memory_hours": memory_gb * hours,
        "storage_hours": storage_gb * hours,
        "storage_gb": storage_gb,
    }
