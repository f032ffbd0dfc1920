"""Sandboxes and their usage on SQLite or PostgreSQL."""

from collections.abc import Sequence
from datetime import datetime
from decimal import Decimal
from functools import partial
from typing import Any

import sqlalchemy as sa
from sqlalchemy.exc import IntegrityError

from sandyard.kit.paging import Page
from sandyard.kit.sql import Database, Work
from sandyard.kit.sql_paging import page_of
from sandyard.platform.notifications.model import Notice
from sandyard.platform.notifications.sql import notify
from sandyard.platform.sandboxes.errors import (
    SandboxNameTakenError,
)
from sandyard.platform.sandboxes.model import End, NewSandbox, Quota, Sandbox, Status
from sandyard.platform.sandboxes.ports import SandboxQuery, Usable
from sandyard.platform.sandboxes.sql_room import (
    active as _active,
)
from sandyard.platform.sandboxes.sql_room import (
    find_usable,
    lock_project,
    require_room,
)
from sandyard.platform.tables import sandboxes, users
from sandyard.platform.usage.sql import close_runtime, costs_of, keep_storage, open_runtime

_column = sandboxes.c
_SORTS = {"created_at": _column.created_at, "name": _column.name, "updated_at": _column.updated_at}
SORTS = tuple(sign + name for name in _SORTS for sign in ("", "-"))


class SqlSandboxStore:
    def __init__(self, database: Database) -> None:
        self._database = database

    async def find_usable(
        self, account_id: str, *, template_id: str, project_id: str | None
    ) -> Usable:
        return await self._database.read(
            lambda connection: find_usable(
                connection, account_id, template_id=template_id, project_id=project_id
            )
        )

    async def add(
        self, new: NewSandbox, *, sandbox_id: str, account_id: str, now: datetime
    ) -> Sandbox:
        statement = sandboxes.insert().values(
            sandbox_id=sandbox_id,
            owner_account_id=account_id,
            name=new.name,
            description=new.description,
            template_id=new.template_id,
            project_id=new.project_id,
            cpu_spec=new.cpu_spec,
            memory_spec=new.memory_spec,
            max_running_seconds=new.max_running_seconds,
            status=Status.CREATED,
            attempt=0,
            created_at=now,
            updated_at=now,
        )

        def work(connection: sa.Connection) -> Any:
            lock_project(connection, account_id, new.project_id)
            return connection.execute(statement.returning(*_column)).one()

        return _sandbox(await self._named(work), Decimal(0))

    async def find(
        self, sandbox_id: str, *, account_id: str | None, now: datetime
    ) -> Sandbox | None:
        statement = sa.select(sandboxes).where(_column.sandbox_id == sandbox_id)
        if account_id is not None:
            statement = statement.where(_column.owner_account_id == account_id)
        found = await self._database.read(partial(_with_costs, statement=statement, now=now))
        return found[0] if found else None

    async def page(
        self, account_id: str, query: SandboxQuery, *, limit: int, cursor: str | None, now: datetime
    ) -> Page[Sandbox]:
        statement = sa.select(sandboxes).where(
            _column.owner_account_id == account_id, *_filters(query)
        )
        rows, next_cursor = await page_of(
            self._database,
            statement,
            (_SORTS[query.sort.lstrip("-")], _column.id),
            listing=f"sandboxes {account_id} {query}",
            limit=limit,
            cursor=cursor,
            descending=query.sort.startswith("-"),
        )
        ids = [row.sandbox_id for row in rows]
        costs = await self._database.read(partial(costs_of, sandbox_ids=ids, now=now))
        return Page(
            [_sandbox(row, costs.get(row.sandbox_id, Decimal(0))) for row in rows], next_cursor
        )

    async def change(self, before: Sandbox, after: Sandbox, *, now: datetime) -> bool:
        statement = (
            sandboxes.update()
            .where(*_unchanged(before))
            .values(
                name=after.name,
                description=after.description,
                cpu_spec=after.cpu_spec,
                memory_spec=after.memory_spec,
                max_running_seconds=after.max_running_seconds,
                updated_at=now,
            )
        )
        returned = await self._named(
            lambda connection: connection.execute(statement.returning(_column.id)).first()
        )
        return returned is not None

    async def begin(
        self, sandbox: Sandbox, *, attempt: int, node: str, quota: Quota, now: datetime
    ) -> bool:
        statement = (
            sandboxes.update()
            .where(*_unchanged(sandbox))
            .values(
                status=Status.STARTING,
                status_reason=None,
                attempt=attempt,
                node=node,
                preview_url=None,
                timeout_at=None,
                updated_at=now,
            )
        )

        def work(connection: sa.Connection) -> bool:
            require_room(connection, sandbox, quota)
            return connection.execute(statement).rowcount == 1

        return await self._database.write(work)

    async def record_running(
        self,
        sandbox_id: str,
        *,
        attempt: int,
        usage_id: str,
        url: str,
        hourly_rate: Decimal,
        started_at: datetime,
        timeout_at: datetime,
    ) -> bool:
        statement = (
            sandboxes.update()
            .where(_is_attempt(sandbox_id, attempt), _column.status == Status.STARTING)
            .values(
                status=Status.RUNNING,
                preview_url=url,
                started_at=started_at,
                timeout_at=timeout_at,
                stopped_at=None,
                updated_at=started_at,
            )
            .returning(*_column)
        )

        def work(connection: sa.Connection) -> bool:
            row = connection.execute(statement).first()
            if row is not None:
                open_runtime(
                    connection, row, usage_id=usage_id, rate=hourly_rate, started_at=started_at
                )
            return row is not None

        return await self._database.write(work)

    async def record_end(
        self,
        sandbox_id: str,
        *,
        attempt: int,
        end: End,
        usage_id: str,
        storage_rate: Decimal,
        notice: Notice | None,
    ) -> bool:
        active = sa.select(sandboxes).where(_is_attempt(sandbox_id, attempt), _active)

        def work(connection: sa.Connection) -> bool:
            row = connection.execute(active.with_for_update()).first()
            if row is None:
                return False
            close_runtime(connection, sandbox_id, ended_at=end.ended_at, reason=end.reason)
            kept: dict[str, Any] = {}
            if end.snapshot_id is not None:
                keep_storage(
                    connection, row, usage_id=usage_id, rate=storage_rate, until=end.ended_at
                )
                kept = {
                    "latest_snapshot_id": end.snapshot_id,
                    "snapshot_bytes": end.snapshot_bytes,
                    "snapshot_taken_at": end.ended_at,
                    "snapshot_expires_at": end.snapshot_expires_at,
                    "storage_counted_until": max(
                        end.ended_at, row.storage_counted_until or end.ended_at
                    ),
                    "expiry_told_at": None,
                }
            connection.execute(
                sandboxes.update()
                .where(_is_attempt(sandbox_id, attempt))
                .values(
                    status=end.status,
                    status_reason=end.reason,
                    preview_url=None,
                    stopped_at=end.ended_at,
                    updated_at=end.ended_at,
                    **kept,
                )
            )
            if notice is not None:
                notify(connection, [row.owner_account_id], notice, now=end.ended_at)
            return True

        return await self._database.write(work)

    async def recycle(
        self, sandbox: Sandbox, *, now: datetime, usage_id: str, storage_rate: Decimal
    ) -> bool:
        values = {"status": Status.RECYCLED, "recycled_at": now}
        return await self._give_up_snapshot(sandbox, values, usage_id, storage_rate, now)

    async def drop_snapshot(
        self, sandbox: Sandbox, *, now: datetime, usage_id: str, storage_rate: Decimal
    ) -> bool:
        return await self._give_up_snapshot(sandbox, {}, usage_id, storage_rate, now)

    async def _give_up_snapshot(
        self,
        sandbox: Sandbox,
        values: dict[str, Any],
        usage_id: str,
        storage_rate: Decimal,
        now: datetime,
    ) -> bool:
        unchanged = sa.and_(
            *_unchanged(sandbox),
            _column.latest_snapshot_id.is_not_distinct_from(sandbox.latest_snapshot_id),
            sa.not_(_active),
        )

        def work(connection: sa.Connection) -> bool:
            found = sa.select(sandboxes).where(unchanged).with_for_update()
            row = connection.execute(found).first()
            if row is None:
                return False
            keep_storage(connection, row, usage_id=usage_id, rate=storage_rate, until=now)
            connection.execute(
                sandboxes.update()
                .where(unchanged)
                .values(
                    latest_snapshot_id=None,
                    snapshot_bytes=None,
                    snapshot_taken_at=None,
                    snapshot_expires_at=None,
                    storage_counted_until=None,
                    updated_at=now,
                    **values,
                )
            )
            return True

        return await self._database.write(work)

    async def active_on(self, node: str, *, now: datetime) -> Sequence[Sandbox]:
        statement = sa.select(sandboxes).where(_active, _column.node == node)
        return await self._database.read(partial(_with_costs, statement=statement, now=now))

    async def active_of_deactivated(self, node: str, *, now: datetime) -> Sequence[Sandbox]:
        statement = (
            sa.select(sandboxes)
            .join(users, users.c.account_id == _column.owner_account_id)
            .where(_active, _column.node == node, users.c.is_active.is_(False))
        )
        return await self._database.read(partial(_with_costs, statement=statement, now=now))

    async def with_snapshot_until(
        self, moment: datetime, *, limit: int, after: str, now: datetime
    ) -> Sequence[Sandbox]:
        statement = (
            sa.select(sandboxes)
            .where(_column.snapshot_expires_at <= moment, _column.sandbox_id > after)
            .order_by(_column.sandbox_id)
            .limit(limit)
        )
        return await self._database.read(partial(_with_costs, statement=statement, now=now))

    async def warn_of_expiry(self, sandbox: Sandbox, notice: Notice, *, now: datetime) -> bool:
        statement = (
            sandboxes.update()
            .where(
                _column.sandbox_id == sandbox.sandbox_id,
                _column.latest_snapshot_id == sandbox.latest_snapshot_id,
                _column.expiry_told_at.is_(None),
            )
            .values(expiry_told_at=now)
        )

        def work(connection: sa.Connection) -> bool:
            is_first = connection.execute(statement).rowcount == 1
            if is_first:
                notify(connection, [sandbox.owner_account_id], notice, now=now)
            return is_first

        return await self._database.write(work)

    async def claimed_snapshots(self, snapshot_ids: Sequence[str]) -> set[str]:
        statement = sa.select(_column.latest_snapshot_id).where(
            _column.latest_snapshot_id.in_(snapshot_ids)
        )
        return await self._database.read(
            lambda connection: {found for (found,) in connection.execute(statement)}
        )

    async def _named(self, work: Work[Any]) -> Any:
        """Run a write that may meet the name of another sandbox of the owner's."""
        try:
            return await self._database.write(work)
        except IntegrityError as error:
            raise SandboxNameTakenError from error


def _filters(query: SandboxQuery) -> list[sa.ColumnElement[bool]]:
    filters: list[sa.ColumnElement[bool]] = []
    if query.status is not None:
        filters.append(_column.status == query.status)
    if query.project_id is not None:
        filters.append(_column.project_id == query.project_id)
    if query.template_id is not None:
        filters.append(_column.template_id == query.template_id)
    if query.search is not None:
        filters.append(_column.name.icontains(query.search, autoescape=True))
    return filters


def _is_attempt(sandbox_id: str, attempt: int) -> sa.ColumnElement[bool]:
    return sa.and_(_column.sandbox_id == sandbox_id, _column.attempt == attempt)


def _unchanged(sandbox: Sandbox) -> tuple[sa.ColumnElement[bool], ...]:
    return (_is_attempt(sandbox.sandbox_id, sandbox.attempt), _column.status == sandbox.status)


def _with_costs(
    connection: sa.Connection, statement: sa.Select[Any], now: datetime
) -> Sequence[Sandbox]:
    rows = connection.execute(statement).all()
    costs = costs_of(connection, sandbox_ids=[row.sandbox_id for row in rows], now=now)
    return [_sandbox(row, costs.get(row.sandbox_id, Decimal(0))) for row in rows]


def _sandbox(row: Any, cost: Decimal) -> Sandbox:
    fields = {
        name: getattr(row, name)
        for name in Sandbox.__dataclass_fields__
        if name not in ("cost", "status")
    }
    return Sandbox(**fields, status=Status(row.status), cost=cost)
