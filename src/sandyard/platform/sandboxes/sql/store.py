"""Sandboxes on SQLite or PostgreSQL."""

from collections.abc import Mapping, Sequence
from dataclasses import fields
from datetime import datetime
from decimal import Decimal
from functools import partial
from typing import Any

import sqlalchemy as sa
from sqlalchemy.exc import IntegrityError

from sandyard.kit.changes.events import Event
from sandyard.kit.changes.transitions import Transition
from sandyard.kit.paging import Page
from sandyard.kit.sql.entities import find_entities
from sandyard.kit.sql.transitions import EntityTable, SqlEntityStore
from sandyard.platform.entities.model import Listing
from sandyard.platform.entities.sql import Condition, SqlListing
from sandyard.platform.quotas.model import QuotaCheck, QuotaRequest, Resources
from sandyard.platform.sandboxes.errors import SandboxNameTakenError
from sandyard.platform.sandboxes.model import (
    ProjectState,
    Sandbox,
    SandboxFilter,
    Status,
)
from sandyard.platform.sandboxes.ports import ActiveCounts
from sandyard.platform.sandboxes.runs.end_model import ActiveRun
from sandyard.platform.sandboxes.runs.model import is_to_recycle
from sandyard.platform.sandboxes.sql import facts
from sandyard.platform.schema.tables import sandboxes, templates, users
from sandyard.platform.usage.model import Usage
from sandyard.platform.usage.sql import costs_of, find_open_usage

SANDBOXES = EntityTable(Sandbox, sandboxes)

_column = sandboxes.c
_BY_ID = sa.select(sandboxes).where(_column.sandbox_id == sa.bindparam("sandbox_id"))
"""Built once: every call about a sandbox runs it, and building it takes as long."""
_OF_ACTIVE = _BY_ID.join(users, users.c.account_id == _column.owner_account_id).where(
    users.c.is_active
)
_ACTIVE_RUNS = (
    sa.select(*(_column[each.name] for each in fields(ActiveRun)))
    .where(facts.is_active, _column.node == sa.bindparam("node"))
    .order_by(_column.sandbox_id)
)
_is_kept = _column.status != Status.RECYCLED
_LISTING = SqlListing(
    SANDBOXES,
    searched=(_column.name,),
    special={"is_recycled": lambda value: sa.not_(_is_kept) if value else _is_kept},
)

_MOST_IDS = 5_000
"""In one statement: the engines take about 32,000 parameters."""


class SqlSandboxStore(SqlEntityStore):
    async def apply(
        self, *transitions: Transition[Any], extra_events: Sequence[Event] = ()
    ) -> bool:
        try:
            return await super().apply(*transitions, extra_events=extra_events)
        except IntegrityError as error:
            if any(_gives_name(each) for each in transitions):
                raise SandboxNameTakenError from error
            raise

    async def find(self, sandbox_id: str, *, account_id: str | None = None) -> Sandbox | None:
        row = await self._database.read(
            lambda connection: connection.execute(_BY_ID, {"sandbox_id": sandbox_id}).first()
        )
        found = None if row is None else SANDBOXES.entity_of(row)
        is_theirs = found is not None and account_id in (None, found.owner_account_id)
        return found if is_theirs else None

    async def find_of_active(self, sandbox_id: str) -> Sandbox | None:
        row = await self._database.read(
            lambda connection: connection.execute(_OF_ACTIVE, {"sandbox_id": sandbox_id}).first()
        )
        return None if row is None else SANDBOXES.entity_of(row)

    async def find_with_usage(self, sandbox_id: str) -> tuple[Sandbox, Usage | None] | None:
        statement = sa.select(sandboxes).where(_column.sandbox_id == sandbox_id)

        def work(connection: sa.Connection) -> tuple[Sandbox, Usage | None] | None:
            row = connection.execute(statement).first()
            if row is None:
                return None
            return SANDBOXES.entity_of(row), find_open_usage(connection, sandbox_id)

        return await self._database.read(work)

    async def page(self, account_id: str, listing: Listing[SandboxFilter]) -> Page[Sandbox]:
        own, name = _column.owner_account_id == account_id, f"sandboxes {account_id}"
        return await _LISTING.page(self._database, listing, own, name=name)

    async def costs(self, sandbox_ids: Sequence[str], *, now: datetime) -> Mapping[str, Decimal]:
        return await self._database.read(partial(costs_of, sandbox_ids=sandbox_ids, now=now))

    async def find_project(self, account_id: str, project_id: str | None) -> ProjectState | None:
        return await self._database.read(
            partial(facts.read_project, account_id=account_id, project_id=project_id)
        )

    async def check_quota(self, request: QuotaRequest) -> QuotaCheck:
        return await self._database.read(partial(facts.read_quota_check, request=request))

    async def in_use(self, account_id: str, *, workspace_gb: float) -> Resources:
        return await self._database.read(
            partial(facts.read_in_use, account_id=account_id, workspace_gb=workspace_gb)
        )

    async def snapshot_bytes(self, account_id: str) -> int:
        total = sa.func.coalesce(sa.func.sum(_column.snapshot_bytes), 0)
        statement = sa.select(total).where(_column.owner_account_id == account_id)
        return int(
            await self._database.read(lambda connection: connection.execute(statement).scalar_one())
        )

    async def active_on(self, node: str) -> Sequence[Sandbox]:
        """By some thousands: all at once may take longer than a statement may."""
        found = await self.active_runs(node)
        return await self.active_of(node, [each.sandbox_id for each in found])

    async def active_runs(self, node: str) -> Sequence[ActiveRun]:
        rows = await self._database.read(
            lambda connection: connection.execute(_ACTIVE_RUNS, {"node": node}).mappings().all()
        )
        return [ActiveRun(**{**row, "status": Status(row["status"])}) for row in rows]

    async def active_of(self, node: str, sandbox_ids: Sequence[str]) -> Sequence[Sandbox]:
        found: list[Sandbox] = []
        for begin in range(0, len(sandbox_ids), _MOST_IDS):
            some = _column.sandbox_id.in_(sandbox_ids[begin : begin + _MOST_IDS])
            found += await self._all(facts.is_active, _column.node == node, some)
        return found

    async def active_elsewhere(self, node: str, *, unseen_since: datetime) -> Sequence[Sandbox]:
        is_elsewhere = _column.node.is_distinct_from(node)
        return await self._all(facts.is_active, is_elsewhere, _is_silent(unseen_since))

    async def to_recycle(self, node: str, *, now: datetime) -> Sequence[Sandbox]:
        may_be_over = sa.or_(
            _column.status.in_((Status.CREATED, Status.TIMEOUT)),
            sa.and_(_column.status == Status.STOPPED, _column.timeout_at <= now),
        )
        is_here = sa.or_(_column.node.is_(None), _column.node == node)
        found = await self._all(_column.recycle_on_timeout, may_be_over, is_here)
        return [each for each in found if is_to_recycle(each, now=now)]

    async def labelled(self, label: str, *, node: str) -> Sequence[Sandbox]:
        """Those that have it in their metadata, and may be recycled from this node."""
        is_here = sa.or_(sa.not_(facts.is_active), _column.node == node)
        has_it = _column.metadata[label].as_string().is_not(None)
        return await self._all(_is_kept, is_here, has_it)

    async def count_active(self, *, unseen_since: datetime) -> ActiveCounts:
        silent = sa.func.sum(sa.case((_is_silent(unseen_since), 1), else_=0))
        statement = (
            sa.select(_column.status, sa.func.count(), silent)
            .where(facts.is_active)
            .group_by(_column.status)
        )
        rows = await self._database.read(lambda connection: connection.execute(statement).all())
        by_status = {Status(status): count for status, count, _ in rows}
        return ActiveCounts(by_status, silent=sum(int(each) for *_, each in rows))

    async def note_seen(self, sandbox_ids: Sequence[str], *, at: datetime) -> None:
        is_later = sa.or_(_column.last_seen_at.is_(None), _column.last_seen_at < at)
        for begin in range(0, len(sandbox_ids), _MOST_IDS):
            some = _column.sandbox_id.in_(sandbox_ids[begin : begin + _MOST_IDS])
            await self._note(sa.and_(some, is_later), last_seen_at=at)

    async def note_used(self, sandbox_id: str, *, at: datetime) -> None:
        await self._note(_column.sandbox_id == sandbox_id, last_used_at=at)

    async def active_of_deactivated(self, node: str) -> Sequence[Sandbox]:
        inactive = sa.select(users.c.account_id).where(users.c.is_active.is_(False))
        is_theirs = _column.owner_account_id.in_(inactive)
        return await self._all(facts.is_active, _column.node == node, is_theirs)

    async def with_snapshot_until(
        self, moment: datetime, *, limit: int, after: str
    ) -> Sequence[Sandbox]:
        is_due = _column.snapshot_expires_at <= moment
        return await self._all(is_due, _column.sandbox_id > after, limit=limit)

    async def with_uncounted_storage(
        self, until: datetime, *, limit: int, after: str
    ) -> Sequence[Sandbox]:
        is_due = _column.storage_counted_until < until
        return await self._all(is_due, _column.sandbox_id > after, limit=limit)

    async def referenced_snapshots(self, snapshot_ids: Sequence[str]) -> set[str]:
        statement = sa.select(_column.latest_snapshot_id).where(
            _column.latest_snapshot_id.in_(snapshot_ids)
        )
        return await self._database.read(
            lambda connection: {found for (found,) in connection.execute(statement)}
        )

    async def referenced_archives(self, archive_ids: Sequence[str]) -> set[str]:
        begins = sa.select(_column.archive_id).where(
            _column.archive_id.in_(archive_ids),
            _column.latest_snapshot_id.is_(None),
            _column.status != Status.RECYCLED,
        )
        with_archives = sa.select(templates.c.archives).where(
            templates.c.archives.is_not(None), templates.c.deleted_at.is_(None)
        )
        return await self._database.read(
            lambda connection: (
                {
                    *connection.scalars(begins),
                    *(
                        each
                        for found in connection.scalars(with_archives)
                        for each in (found or {}).values()
                    ),
                }
                & set(archive_ids)
            )
        )

    async def _note(self, which: Condition, **values: datetime) -> None:
        statement = sandboxes.update().where(which, facts.is_active).values(values)
        await self._database.write(lambda connection: connection.execute(statement))

    async def _all(self, *conditions: Condition, limit: int | None = None) -> Sequence[Sandbox]:
        order = _column.sandbox_id
        return await find_entities(self._database, SANDBOXES, *conditions, limit=limit, order=order)


def _is_silent(unseen_since: datetime) -> Condition:
    return sa.or_(_column.last_seen_at.is_(None), _column.last_seen_at <= unseen_since)


def _gives_name(transition: Transition[Any]) -> bool:
    before, after = transition.before, transition.after
    return isinstance(after, Sandbox) and (before is None or before.name != after.name)
